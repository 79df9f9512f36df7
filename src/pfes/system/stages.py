"""Long work as generators: they yield signs of progress and return what they made."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

Sign = TypeVar("Sign")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Stage:
    """A part of some work, for whoever shows progress."""

    name: str
    done: int = 0
    total: int | None = None
    unit: str = "examples"


@dataclass(frozen=True)
class Notice(Stage):
    """A sentence about the work, to stay on the screen."""


def result_of(
    work: Generator[Sign, None, Made], show: Callable[[Sign], Any] = lambda sign: None
) -> Made:
    """Do some work to its end, showing each sign of progress, and return what it made.

    If showing fails or is interrupted, the work is closed, so that it can save what it has.
    """
    with closing(work):
        while True:
            try:
                sign = next(work)
            except StopIteration as end:
                made: Made = end.value
                return made
            show(sign)
