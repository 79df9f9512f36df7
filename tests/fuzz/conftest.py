"""Counting the cases that were tried, and saying so at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest


class Cases:
    """How many cases a test has tried."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all cases of a module write to, over each other."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def cases(record_property) -> Iterator[Cases]:
    found = Cases()
    yield found
    assert found.count > 100
    record_property("cases", found.count)
