"""What the tests of commands share: a command called in this process, a small search."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import call
from tests.small_runs import search_command

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli() -> Cli:
    """Run a command line in this process; return exit code, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        done = call(*arguments)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def finished(cli: Cli, folders, task_file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "finished"
    assert cli(*search_command(folders("llama"), task_file, out))[0] == 0
    return out


def check_error(outcome: tuple[int, str, str], message: str) -> None:
    code, shown, log = outcome
    assert code == 2
    assert shown == ""
    assert len(log.splitlines()) == 1, log
    assert message in log
