"""Show a run: as live bars on a terminal, line by line in a log, or not at all with --json."""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from pfes.runs.result import Result
from pfes.runs.run import Event
from pfes.searches.loop import Step
from pfes.searches.scoring import Score
from pfes.system.stages import Notice, Stage, result_of

SECONDS_BETWEEN_LINES = 60.0  # about the same stage


class Display(Protocol):
    """Shows the events of a run."""

    def show(self, event: Event) -> None: ...


@contextmanager
def display(budget: int, quiet: bool, minutes: float | None = None) -> Iterator[Display]:
    """Choose how to show a run on standard error; its search may take only so many minutes."""
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        with _Live(budget, minutes) as live:
            yield live
    else:
        yield _Lines(budget, minutes)


def follow(
    events: Generator[Event, None, Result], budget: int, quiet: bool, minutes: float | None = None
) -> Result:
    """Show a run until its end and return its result."""
    with display(budget, quiet, minutes) as shown:
        return result_of(events, shown.show)


def follow_scoring(
    steps: Generator[int, None, list[Score]], total: int, quiet: bool
) -> list[Score]:
    """Show the scoring of examples until its end and return the scores."""
    with display(total, quiet) as shown:
        return result_of(steps, lambda done: shown.show(Stage("scoring", done, total)))


class _Silent:
    def show(self, event: Event) -> None:
        pass


class _Lines:
    """Lines for a log: one for each validation and stage, and one a minute in a long stage."""

    def __init__(self, budget: int, minutes: float | None) -> None:
        self.budget = budget
        self.minutes = minutes
        self.stage = ""
        self.began = (0.0, 0)  # time and count when the stage was first shown
        self.last = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, Notice):
            print(event.name, file=sys.stderr, flush=True)
        elif isinstance(event, Stage) and event.total is not None:
            now = time.monotonic()
            if event.name != self.stage:
                self.stage, self.began, self.last = event.name, (now, event.done), now
                line = f"{event.name}, {event.total} {event.unit}"
                print(line, file=sys.stderr, flush=True)
            elif now - self.last >= SECONDS_BETWEEN_LINES and event.done > self.began[1]:
                self.last = now
                pace = (now - self.began[0]) / (event.done - self.began[1])
                left = pace * (event.total - event.done) / 60
                line = f"{event.name}, {event.done}/{event.total}, {left:.0f} min left"
                print(line, file=sys.stderr, flush=True)
        elif isinstance(event, Step) and event.validation is not None:
            left = seconds_left(event, self.budget, self.minutes)
            print(
                f"{event.evaluations}/{self.budget} FEs  {_summary(event)}  "
                f"validation {event.validation.metric:.3f}  "
                + (f"{left / 60:.1f} min left" if left >= 60 else f"{left:.0f} s left"),
                file=sys.stderr,
                flush=True,
            )


class _TimeLeft(TimeRemainingColumn):
    """The time left by the bar's pace, or what a search knows of it."""

    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        if left is None or task.finished:
            return super().render(task)
        return Text(str(timedelta(seconds=round(left))), style="progress.remaining")


class _Live:
    """A bar for each part of a run; the search's also has best loss, step size and speed."""

    def __init__(self, budget: int, minutes: float | None) -> None:
        self.budget = budget
        self.minutes = minutes
        self.progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[summary]}"),
            _TimeLeft(),
            console=Console(stderr=True),
        )
        self.current: tuple[str, TaskID] | None = None
        self.validation = ""

    def __enter__(self) -> "_Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.progress.stop()

    def show(self, event: Event) -> None:
        if isinstance(event, Step):
            summary = _summary(event)
            if event.validation is not None:
                self.validation = f"  validation {event.validation.metric:.3f}"
            left = seconds_left(event, self.budget, self.minutes)
            summary += self.validation
            self._bar("searching", event.evaluations, self.budget, summary, left)
        elif isinstance(event, Notice):
            self.progress.console.print(event.name, highlight=False, soft_wrap=True)
        else:
            self._bar(event.name, event.done, event.total)

    def _bar(
        self,
        name: str,
        done: int,
        total: int | None,
        summary: str = "",
        left: float | None = None,
    ) -> None:
        if self.current is None or self.current[0] != name:
            self._end()
            self.current = (
                name,
                self.progress.add_task(name, total=total, summary="", count="", left=None),
            )
        count = "" if total is None else f"{done}/{total}"
        bar = self.current[1]
        self.progress.update(bar, completed=done, summary=summary, count=count, left=left)

    def _end(self) -> None:
        """Leave the current bar as it is; remove it if its length is unknown, as for loading."""
        if self.current is not None:
            bar = self.current[1]
            has_total = self.progress.tasks[self.progress.task_ids.index(bar)].total is not None
            if not has_total:
                self.progress.remove_task(bar)
            self.current = None


@contextmanager
def counting(items: str, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each item; show the count, as the total is unknown."""
    done, began, last = 0, time.monotonic(), time.monotonic()
    console = None if quiet or not sys.stderr.isatty() else Console(stderr=True)
    with console.status(items) if console else nullcontext() as status:

        def count() -> None:
            nonlocal done, last
            done += 1
            now = time.monotonic()
            if quiet or now - last < (0.5 if status else SECONDS_BETWEEN_LINES):
                return
            last = now
            line = f"{done} {items}, {done / (now - began):.1f} a second"
            if status:
                status.update(line)
            else:
                print(line, file=sys.stderr, flush=True)

        yield count


def _summary(step: Step) -> str:
    speed = step.seconds / step.evaluations
    beta = "" if step.beta is None else f"β {step.beta:g}  "
    return f"{beta}best loss {step.best_loss:.4f}  σ {step.sigma:.4g}  {speed:.2f} s/FE"


def seconds_left(step: Step, budget: int, minutes: float | None) -> float:
    """Return the smaller of what the budget, at the pace so far, and the minutes leave."""
    left = step.seconds / step.evaluations * (budget - step.evaluations)
    return left if minutes is None else max(0.0, min(left, 60 * minutes - step.seconds))
