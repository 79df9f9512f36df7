"""Showing a run: live on a terminal, line by line elsewhere, silent for machines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pfes.loop import Step
from pfes.result import Result, Stage
from pfes.run import Event
from pfes.scoring import Score

BETWEEN = 60.0  # seconds between two lines about one stage


class Display(Protocol):
    """Takes the events of a run."""

    def show(self, event: Event) -> None: ...


@contextmanager
def display(budget: int, quiet: bool) -> Iterator[Display]:
    """Choose how to show a run on standard error."""
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        with _Live(budget) as live:
            yield live
    else:
        yield _Lines(budget)


def follow(events: Iterator[Event], budget: int, quiet: bool) -> Result:
    """Show a run to its end and return its result."""
    with display(budget, quiet) as shown:
        for event in events:
            shown.show(event)
    assert isinstance(event, Result)
    return event


def follow_scoring(steps: Iterator[int | Score], total: int, quiet: bool) -> Score:
    """Show the scoring of examples to its end and return the score."""
    with display(total, quiet) as shown:
        for progress in steps:
            if isinstance(progress, Score):
                return progress
            shown.show(Stage("scoring", progress, total))
    raise AssertionError("scoring ends with a score")


class _Silent:
    def show(self, event: Event) -> None:
        pass


class _Lines:
    """One line for each validation and each stage, of a long stage one a minute: for a log."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.stage = ""
        self.began = (0.0, 0)  # time and place of the stage's first sign
        self.last = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, Stage) and event.total is not None:
            now = time.monotonic()
            if event.name != self.stage:
                self.stage, self.began, self.last = event.name, (now, event.done), now
                line = f"{event.name}, {event.total} {event.unit}"
                print(line, file=sys.stderr, flush=True)
            elif now - self.last >= BETWEEN and event.done > self.began[1]:
                self.last = now
                pace = (now - self.began[0]) / (event.done - self.began[1])
                left = pace * (event.total - event.done) / 60
                line = f"{event.name}, {event.done}/{event.total}, {left:.0f} min left"
                print(line, file=sys.stderr, flush=True)
        elif isinstance(event, Step) and event.validation is not None:
            print(
                f"{event.evaluations}/{self.budget} FEs  {_figures(event)}  "
                f"validation {event.validation.metric:.3f}  {_left(event, self.budget)}",
                file=sys.stderr,
                flush=True,
            )


class _Live:
    """One bar for each part of a run; the search's has best loss, step size, speed, time left."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.current: tuple[str, TaskID] | None = None
        self.validation = ""

    def __enter__(self) -> "_Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, event: Event) -> None:
        if isinstance(event, Step):
            figures = _figures(event)
            if event.validation is not None:
                self.validation = f"  validation {event.validation.metric:.3f}"
            self._bar("searching", event.evaluations, self.budget, figures + self.validation)
        elif isinstance(event, Stage):
            self._bar(event.name, event.done, event.total)
        else:
            self._end()

    def _bar(self, name: str, done: int, total: int | None, figures: str = "") -> None:
        if self.current is None or self.current[0] != name:
            self._end()
            self.current = name, self.progress.add_task(name, total=total, figures="", count="")
        count = "" if total is None else f"{done}/{total}"
        self.progress.update(self.current[1], completed=done, figures=figures, count=count)

    def _end(self) -> None:
        """Complete the current bar; one of unknown length, such as loading, goes away."""
        if self.current is not None:
            bar = self.current[1]
            known = self.progress.tasks[self.progress.task_ids.index(bar)].total is not None
            if not known:
                self.progress.remove_task(bar)
            self.current = None


@contextmanager
def counting(what: str, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show how many there are so far, of a number that is not known: one call each."""
    done, began, last = 0, time.monotonic(), time.monotonic()
    live = None if quiet or not sys.stderr.isatty() else Console(stderr=True)
    with live.status(what) if live else nullcontext() as status:

        def count() -> None:
            nonlocal done, last
            done += 1
            now = time.monotonic()
            if quiet or now - last < (0.5 if status else BETWEEN):
                return
            last = now
            line = f"{done} {what}, {done / (now - began):.1f} a second"
            if status:
                status.update(line)
            else:
                print(line, file=sys.stderr, flush=True)

        yield count


def _figures(step: Step) -> str:
    speed = step.seconds / step.evaluations
    tried = "" if step.beta is None else f"β {step.beta:g}  "
    return f"{tried}best loss {step.best_loss:.4f}  σ {step.sigma:.4g}  {speed:.2f} s/FE"


def _left(step: Step, budget: int) -> str:
    seconds = step.seconds / step.evaluations * (budget - step.evaluations)
    return f"{seconds / 60:.1f} min left" if seconds >= 60 else f"{seconds:.0f} s left"
