"""The table of a study: rows × tasks, mean ± deviation over seeds, with the paper's numbers."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import pandas as pd

from pfes.reporting.paper import PaperTable, paper_table
from pfes.reporting.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.frame import INTERVAL as BOUNDS
from pfes.studies.plan import PlannedRun, StudySpec

SECONDS = "s/FE"
INTERVAL = (
    "95 % bootstrap interval over the test sentences, mean of its bounds over the seeds: what "
    "includes that of the constant answer cannot be told from chance"
)
CONSTANT = "constant answer"
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
    constant: dict[str, Cell]  # by task: the same answer to everything, where it was tested
    paper: PaperTable | None
    differences: dict[str, list[str]]  # by row of the paper: in what ours is another one

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
        """Yield our table, and as a second one the rows of the paper that differ from ours.

        A row of the paper that can be compared stands in our table, without a rank.
        """
        head = (*self.tasks, SECONDS)
        lines = []
        if CONSTANT not in self.rows and any(cell.values for cell in self.constant.values()):
            floor = [self.constant[task] for task in self.tasks]
            entries = (*(Entry(cell.text, cell.mean) for cell in floor), _seconds_entry(None))
            lines.append((CONSTANT, entries))
        for row in self.rows:
            lines.append((row, self._our_entries(row)))
            if self.paper is not None and self.differences.get(row) == []:
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
        differing = {row: texts for row, texts in self.differences.items() if texts}
        if self.paper is not None and differing:
            yield self._apart(self.paper, differing)

    def _apart(self, paper: PaperTable, differing: dict[str, list[str]]) -> Sheet:
        """Return rows of the paper that cannot be compared, with what differs as footnotes."""
        notes = list(dict.fromkeys("; ".join(texts) for texts in differing.values()))
        lines = [
            (f"{row} [{1 + notes.index('; '.join(texts))}]", self._paper_entries(paper, row))
            for row, texts in differing.items()
        ]
        return Sheet(
            f"Figures of the paper ({paper.model}) that are not comparable with ours",
            (f"{paper.model} (paper)", *self.tasks, SECONDS),
            tuple(lines),
            tuple(f"[{i}] What differs: {note}." for i, note in enumerate(notes, start=1)),
        )

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
        seconds = {str(row): mean(values.astype(float)) for row, values in by_row}
        constant = {str(task): _constant(group) for task, group in runs.groupby("task", sort=False)}
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
                seconds,
                constant,
                paper,
                {} if paper is None else _differences(paper, plan, runs),
            )
        )
    return tables


def _constant(runs: pd.DataFrame) -> Cell:
    """Return what a constant answer gives on one task: the same for all rows of a seed."""
    by_seed = runs.dropna(subset="constant").groupby("seed", sort=False)["constant"].first()
    values = tuple(100 * float(value) for value in by_seed)
    return Cell(values, len(values))


def _differences(
    paper: PaperTable, plan: list[PlannedRun], runs: pd.DataFrame
) -> dict[str, list[str]]:
    found = {}
    for row, part in runs.groupby("row", sort=False):
        if row in paper.rows:
            sizes = part["test_examples"].astype(object).where(part["test_examples"].notna(), None)
            pairs = ((plan[i].config, size) for i, size in sizes.items())
            found[str(row)] = paper.differences(str(row), pairs)
    return found


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
