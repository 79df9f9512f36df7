"""The table of a study: rows × tasks, mean ± deviation over seeds, with the paper's numbers."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import pandas as pd

from pfes.methods import METHODS
from pfes.reporting.paper import PaperTable, paper_table
from pfes.reporting.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.frame import INTERVAL as BOUNDS
from pfes.studies.plan import PlannedRun, StudySpec

SECONDS = "s/FE"
INTERVAL = (
    "95 % bootstrap interval over the test sentences, mean of its bounds over the seeds: what "
    "includes that of the constant answer cannot be told from chance"
)
AUC = "area under the ROC curve, in percent, one label against the rest"
OTHERS = {  # further figures of a study that reports what is free: column, factor, meaning
    "ECE": ("ece", 100, "expected calibration error, in percent"),
    "training CE": ("train_ce", 1, "cross-entropy on the training examples"),
    "P": ("probability", 1, "mean probability of the predicted word in the whole vocabulary"),
    "R": ("rank", 1, "mean rank of the predicted word in the whole vocabulary"),
}


@dataclass(frozen=True)
class Cell:
    """The test metrics (or another figure) of one row on one task, a value for each seed."""

    values: tuple[float, ...]
    planned: int  # how many seeds there will be

    @property
    def mean(self) -> float | None:
        return mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """Mean and deviation; if seeds are missing, also how many there are."""
        part = "" if len(self.values) == self.planned else f" ({len(self.values)}/{self.planned})"
        return MISSING if self.mean is None else figure_text(self.mean, self.deviation) + part


@dataclass(frozen=True)
class StudyTable:
    """The results of all rows on all tasks, for one model, in one part of a study."""

    model: str
    part: str | None  # None where a study has no parts
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    aucs: dict[tuple[str, str], Cell]  # areas under the ROC curve, of the runs that have one
    others: dict[str, dict[tuple[str, str], Cell]]  # by name: see `OTHERS`
    bounds: list[dict[tuple[str, str], Cell]]  # of the metric's interval, low and high
    seconds: dict[str, float]  # per function evaluation, mean over the row's runs
    paper: PaperTable | None
    comparable: bool  # whether model and budget are those of the paper

    @property
    def title(self) -> str:
        return self.model if self.part is None else f"{self.part} · {self.model}"

    def rank(self, row: str, task: str) -> int | None:
        """Return the rank of a row's mean on a task, 1 for the best; equal means share a rank."""
        row_mean = self.cells[row, task].mean
        if row_mean is None:
            return None
        means = {self.cells[other, task].mean for other in self.rows}
        better = {value for value in means if value is not None and value > row_mean}
        return 1 + len(better)

    def sheets(self) -> Iterator[Sheet]:
        """Yield our table, and the paper's as a second one if its model or budget differs.

        If model and budget are the same, the paper's rows are in our table, without a rank.
        """
        head = (*self.tasks, SECONDS)
        lines = []
        for row in self.rows:
            lines.append((row, self._our_entries(row)))
            if self.comparable and self.paper is not None and row in self.paper.rows:
                lines.append((f"{row} (paper)", self._paper_entries(self.paper, row)))
        yield Sheet(self.title, (self.title, *head), tuple(lines))
        if any(cell.values for cells in self.bounds for cell in cells.values()):
            ranges = tuple((row, self._interval_entries(row)) for row in self.rows)
            yield Sheet(
                f"{self.title}: {INTERVAL}", (f"{self.title}, interval", *self.tasks), ranges
            )
        figures = {"AUC": (AUC, self.aucs)}
        figures |= {name: (OTHERS[name][2], cells) for name, cells in self.others.items()}
        for name, (meaning, cells) in figures.items():
            if any(cell.values for cell in cells.values()):
                below = tuple((row, self._entries(cells, row)) for row in self.rows)
                head = (f"{self.title}, {name}", *self.tasks)
                yield Sheet(f"{self.title}: {meaning}", head, below)
        if self.paper is not None and not self.comparable:
            paper_lines = [
                (row, self._paper_entries(self.paper, row))
                for row in self.rows
                if row in self.paper.rows
            ]
            caption = (
                f"The paper's figures, of another model or budget: {self.paper.model}, "
                f"{self.paper.budget} function evaluations. Not comparable with ours."
            )
            if paper_lines:
                yield Sheet(caption, (f"{self.paper.model} (paper)", *head), tuple(paper_lines))

    def _our_entries(self, row: str) -> tuple[Entry, ...]:
        entries = []
        for task in self.tasks:
            cell = self.cells[row, task]
            note = "seeds: " + ", ".join(f"{value:.2f}" for value in cell.values)
            entries.append(Entry(cell.text, cell.mean, self.rank(row, task), note))
        return (*entries, _seconds_entry(self.seconds.get(row)))

    def _interval_entries(self, row: str) -> tuple[Entry, ...]:
        entries = []
        for task in self.tasks:
            low, high = (cells[row, task].mean for cells in self.bounds)
            known = low is not None and high is not None
            entries.append(Entry(f"{low:.1f} – {high:.1f}" if known else MISSING, low))
        return tuple(entries)

    def _entries(self, cells: dict[tuple[str, str], Cell], row: str) -> tuple[Entry, ...]:
        own = [cells[row, task] for task in self.tasks]
        return tuple(Entry(cell.text, cell.mean) for cell in own)

    def _paper_entries(self, paper: PaperTable, row: str) -> tuple[Entry, ...]:
        entries = []
        for task in self.tasks:
            figure = paper.rows[row].get(task)
            entry = Entry(figure_text(*figure), figure[0]) if figure else Entry(MISSING, None)
            entries.append(entry)
        return (*entries, _seconds_entry(paper.seconds.get(row)))


def _seconds_entry(seconds: float | None) -> Entry:
    return Entry(MISSING if seconds is None else f"{seconds:.4f}", seconds)


def make_tables(spec: StudySpec, plan: list[PlannedRun], frame: pd.DataFrame) -> list[StudyTable]:
    """Return one table for each part and model of a study."""
    paper = paper_table(spec.name)
    tables = []
    for (part, model), runs in frame.groupby(["part", "model"], sort=False):
        rows, tasks = (tuple(runs[column].unique()) for column in ("row", "task"))
        groups = dict(list(runs.groupby(["row", "task"], sort=False)))
        nothing = runs.iloc[:0]
        by_pair = {(row, task): groups.get((row, task), nothing) for row in rows for task in tasks}

        def cells(column: str, factor: float = 100, by_pair: Any = by_pair) -> Any:
            return {pair: _cell(group, column, factor) for pair, group in by_pair.items()}

        others = OTHERS if spec.free else {}
        timed = runs.dropna(subset="seconds_per_evaluation")
        by_row = timed.groupby("row", sort=False)["seconds_per_evaluation"]
        searched = runs["method"].map(lambda name: METHODS[name].optimizer is not None)
        budgets = {plan[i].config.budget for i in runs.index[searched]}
        comparable = paper is not None and paper.agrees(str(model), budgets)
        tables.append(
            StudyTable(
                str(model),
                str(part) if spec.parts else None,
                rows,
                tasks,
                cells("test"),
                cells("auc"),
                {name: cells(column, factor) for name, (column, factor, _) in others.items()},
                [cells(column) for column in BOUNDS] if spec.free else [],
                {str(row): mean(values.astype(float)) for row, values in by_row},
                paper,
                comparable,
            )
        )
    return tables


def _cell(runs: pd.DataFrame, column: str, factor: float) -> Cell:
    ended = runs[runs["finished"].astype(bool)]
    values = ended["test"] if column == "test" else ended[column].dropna()
    return Cell(tuple(factor * float(value) for value in values), len(runs))


def comma_separated(tables: Iterable[StudyTable]) -> str:
    """Return CSV text with a line for each model, row and task, and the value of every seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measured = ["mean", "deviation", "seeds", "planned", "values", "seconds_per_evaluation"]
    tables = list(tables)
    area = ["auc"] if any(cell.values for table in tables for cell in table.aucs.values()) else []
    part = ["part"] if any(table.part is not None for table in tables) else []
    head = [*part, "model", "row", "task"]
    writer.writerow([*head, *measured, "paper_model", "paper_mean", *area])
    for table in tables:
        for row in table.rows:
            for task in table.tasks:
                cell = table.cells[row, task]
                values = " ".join(map(str, cell.values))
                ours = [cell.mean, cell.deviation, len(cell.values), cell.planned, values]
                paper = table.paper and table.paper.rows.get(row, {}).get(task)
                papers = [table.paper.model, paper[0]] if table.paper and paper else [None, None]
                ours += [table.seconds.get(row)]
                auc = [table.aucs[row, task].mean for _ in area]
                place = [*(table.part for _ in part), table.model, row, task]
                writer.writerow([*place, *ours, *papers, *auc])
    return text.getvalue()
