"""Side-by-side timing: what is compared takes turns, so that other load falls on both."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio, its bar, and the check that both sides agree."""

    name: str
    against: str
    ratio: float | None  # None where it was not measured
    bar: float
    kind: Literal["at least", "at most"]
    detail: str
    difference: float | None = None  # largest, between the two sides' numbers
    tolerance: float | None = None

    @property
    def met(self) -> bool | None:
        if self.ratio is None:
            return None
        within = self.difference is None or self.difference <= (self.tolerance or 0.0)
        good = self.ratio >= self.bar if self.kind == "at least" else self.ratio <= self.bar
        return good and within


def seconds(work: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Return the median seconds of each, after one call of each that does not count."""
    for work in works:
        work()
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [median(column) for column in zip(*times, strict=True)]
