"""Showing a study: one live table on a terminal; elsewhere lines, one a minute and at ends."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pfes.cli.progress import BETWEEN
from pfes.errors import PfesError, printable
from pfes.loop import Step
from pfes.result import Result
from pfes.studies.carry_out import RunEvent
from pfes.studies.plan import PlannedRun


@dataclass
class _Progress:
    """How far a study is."""

    plan: list[PlannedRun]
    began: float
    done: dict[int, Result] = field(default_factory=dict)
    failed: dict[int, PfesError] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)  # how much there is of this session's
    before: dict[int, float] = field(default_factory=dict)  # how much there was of each of them

    def take(self, happened: RunEvent) -> None:
        number, event = happened.number, happened.event
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
        """The time left, from the pace of this session."""
        worked = sum(share - self.before[number] for number, share in self.shares.items())
        if worked <= 0:
            return "–"
        ended = self.done.keys() | self.failed.keys()
        open_runs = [number for number in range(len(self.plan)) if number not in ended]
        remaining = sum(1 - self.shares.get(number, 0.0) for number in open_runs)
        seconds = (time.perf_counter() - self.began) / worked * remaining
        return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"


def follow_study(
    name: str, plan: list[PlannedRun], events: Iterator[RunEvent]
) -> list[tuple[str, PfesError]]:
    """Show a study to its end; return what failed, and why."""
    progress = _Progress(plan, time.perf_counter())
    if sys.stderr.isatty():
        with Live(console=Console(stderr=True), refresh_per_second=2) as live:
            for happened in events:
                progress.take(happened)
                live.update(_table(name, progress))
    else:
        last = progress.began
        for happened in events:
            begun = happened.number in progress.running  # not so a result of an earlier session
            progress.take(happened)
            now = time.perf_counter()
            if isinstance(happened.event, Result):
                shown = begun
            else:
                shown = isinstance(happened.event, PfesError) or now - last >= BETWEEN
            if shown:
                last = now
                print(_line(progress, happened), file=sys.stderr, flush=True)
    return [(_title(plan[number]), error) for number, error in sorted(progress.failed.items())]


def _line(progress: _Progress, happened: RunEvent) -> str:
    event, number = happened.event, happened.number
    if isinstance(event, Result):
        where = f"{event.metric} {event.test:.4f}"
    else:
        where = str(event) if isinstance(event, PfesError) else progress.running[number]
    ended = len(progress.done) + len(progress.failed)
    title = _title(progress.plan[number])
    return f"{ended}/{len(progress.plan)}  {title}: {where}  {progress.left} left"


def _table(name: str, progress: _Progress) -> Table:
    title = f"{name}: {len(progress.done)} of {len(progress.plan)} runs, {progress.left} left"
    if progress.failed:
        title += f", {len(progress.failed)} failed"
    table = Table(title=title, title_justify="left")
    for column in ("run", "seed", "where it is"):
        table.add_column(column)
    for number, where in sorted(progress.running.items()):
        run = progress.plan[number]
        table.add_row(escape(_title(run)), str(run.config.seed), where)
    for number in list(progress.done)[-5:]:
        result = progress.done[number]
        shown = f"{result.metric} {result.test:.4f}"
        title = escape(_title(progress.plan[number]))
        table.add_row(title, str(result.seed), shown, style="dim")
    return table


def _title(run: PlannedRun) -> str:
    config = run.config
    return printable(f"{run.label} · {config.task} · {config.model} · seed {config.seed}")
