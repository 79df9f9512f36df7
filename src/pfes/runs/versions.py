"""All that a run tested, in the order in which a person reads it."""

from collections.abc import Iterator
from dataclasses import dataclass

from pfes.runs.result import Result

FREE_NOTE = "(*) the best of what costs no search, by cross-validation on the labelled examples"


@dataclass(frozen=True)
class Version:
    """Something that was tested."""

    title: str
    value: float  # of the task's metric
    interval: tuple[float, float]
    auc: float | None
    found: bool = False  # whether it is what the run found


def versions(result: Result) -> Iterator[Version]:
    """Yield what is free, the initial prompt, what was selected earlier, and the found one."""
    for free in result.free:
        mark = " (*)" if free.name == result.best_free else ""
        yield Version(free.title + mark, free.test, free.interval, free.auc)
    if not result.free:
        yield Version("template alone", result.zero_shot, result.intervals["zero_shot"], None)
    searched = "added" in result.intervals
    if searched and not result.began_free:
        interval = result.intervals["initial"]
        yield Version("initial prompt", result.initial, interval, result.initial_auc)
    for earlier in result.earlier:
        title = f"after {earlier.at} evaluations"
        yield Version(title, earlier.test, earlier.interval, earlier.auc)
    title = "found prompt" if searched else result.method
    if result.reading.get("rung", "plain") != "plain":
        title += " + reading"
    yield Version(title, result.test, result.intervals["test"], result.auc, found=True)


def kept_sentence(result: Result) -> str:
    """Say that the search found nothing better."""
    if result.began_free:
        return "The search added nothing that validates better than what is free: that is kept."
    return "The search found nothing that validates better than its start: the start is kept."


def figure(value: float | None) -> str:
    """Return a number with four digits, or a dash."""
    return "–" if value is None else f"{value:.4f}"
