"""Show a study: as a live table on a terminal, else as lines, one a minute and at each end."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pfes.cli.progress import SECONDS_BETWEEN_LINES
from pfes.errors import PfesError, printable
from pfes.runs.result import Result
from pfes.searches.loop import Step
from pfes.studies.execute import RunEvent
from pfes.studies.plan import PlannedRun


@dataclass
class _Progress:
    """The progress of a study; runs are named by their index in the plan."""

    plan: list[PlannedRun]
    began: float
    done: dict[int, Result] = field(default_factory=dict)
    failed: dict[int, PfesError] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)  # part done, of runs of this session
    before: dict[int, float] = field(default_factory=dict)  # part that earlier sessions did

    def take(self, run_event: RunEvent) -> None:
        number, event = run_event.number, run_event.event
        if isinstance(event, Result):
            if self.running.pop(number, None) is not None:
                self.before.setdefault(number, 0.0)
                self.shares[number] = 1.0
            self.done[number] = event
        elif isinstance(event, PfesError):
            self.running.pop(number, None)
            self.failed[number] = event
        elif isinstance(event, Step):
            budget = self.plan[number].config.budget
            earlier = event.evaluations - len(event.losses)
            self.before.setdefault(number, earlier / budget)
            self.shares[number] = event.evaluations / budget
            self.running[number] = f"{event.evaluations}/{budget}, best {event.best_loss:.3f}"
        else:
            self.running[number] = event.name

    @property
    def left(self) -> str:
        """The time left, estimated from the pace of this session."""
        worked = sum(share - self.before[number] for number, share in self.shares.items())
        if worked <= 0:
            return "–"
        ended = self.done.keys() | self.failed.keys()
        open_runs = [number for number in range(len(self.plan)) if number not in ended]
        remaining = sum(1 - self.shares.get(number, 0.0) for number in open_runs)
        seconds = (time.perf_counter() - self.began) / worked * remaining
        return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"


def follow_study(
    name: str, plan: list[PlannedRun], events: Generator[RunEvent, None, None]
) -> list[tuple[str, PfesError]]:
    """Show a study until its end; return the titles and errors of the runs that failed.

    However that ends, the events are closed, so that the runs in progress are saved.
    """
    progress = _Progress(plan, time.perf_counter())
    with closing(events):
        _show(name, progress, events)
    return [(_title(plan[number]), error) for number, error in sorted(progress.failed.items())]


def _show(name: str, progress: _Progress, events: Iterator[RunEvent]) -> None:
    if sys.stderr.isatty():
        with Live(console=Console(stderr=True), refresh_per_second=2) as live:
            for run_event in events:
                progress.take(run_event)
                live.update(_table(name, progress))
    else:
        last = progress.began
        for run_event in events:
            ran_here = run_event.number in progress.running  # not if it was finished before
            progress.take(run_event)
            now = time.perf_counter()
            if isinstance(run_event.event, Result):
                shown = ran_here
            else:
                shown = (
                    isinstance(run_event.event, PfesError) or now - last >= SECONDS_BETWEEN_LINES
                )
            if shown:
                last = now
                print(_line(progress, run_event), file=sys.stderr, flush=True)


def _line(progress: _Progress, run_event: RunEvent) -> str:
    event, number = run_event.event, run_event.number
    if isinstance(event, Result):
        status = f"{event.metric} {event.test:.4f}"
    else:
        status = (
            event.for_command_line if isinstance(event, PfesError) else progress.running[number]
        )
    ended = len(progress.done) + len(progress.failed)
    title = _title(progress.plan[number])
    return f"{ended}/{len(progress.plan)}  {title}: {status}  {progress.left} left"


def _table(name: str, progress: _Progress) -> Table:
    title = f"{name}: {len(progress.done)} of {len(progress.plan)} runs, {progress.left} left"
    if progress.failed:
        title += f", {len(progress.failed)} failed"
    table = Table(title=title, title_justify="left")
    for column in ("run", "seed", "where it is"):
        table.add_column(column)
    for number, status in sorted(progress.running.items()):
        run = progress.plan[number]
        table.add_row(escape(_title(run)), str(run.config.seed), status)
    for number in list(progress.done)[-5:]:
        result = progress.done[number]
        shown = f"{result.metric} {result.test:.4f}"
        title = escape(_title(progress.plan[number]))
        table.add_row(title, str(result.seed), shown, style="dim")
    return table


def _title(run: PlannedRun) -> str:
    config = run.config
    return printable(f"{run.label} · {config.task} · {config.model} · seed {config.seed}")
