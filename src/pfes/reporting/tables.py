"""The table of a study: rows × tasks, mean ± deviation over seeds, with the paper's numbers."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev

import pandas as pd

from pfes.reporting.paper import PaperTable, paper_table
from pfes.reporting.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.plan import PlannedRun, StudySpec

SECONDS = "s/FE"
CONSTANT = "constant answer"
AUC = "area under the ROC curve, in percent, one label against the rest"


@dataclass(frozen=True)
class Cell:
    """The test metrics of one row on one task, a value for each seed, in percent."""

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
    """The results of all rows on all tasks, for one model."""

    model: str
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    aucs: dict[tuple[str, str], Cell]  # areas under the ROC curve, of the runs that have one
    seconds: dict[str, float]  # per function evaluation, mean over the row's runs
    constant: dict[str, Cell]  # by task: the same answer to everything, where it was tested
    paper: PaperTable | None
    differences: dict[str, list[str]]  # by row of the paper: in what ours is another one

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
        if any(cell.values for cell in self.constant.values()):
            cells = [self.constant[task] for task in self.tasks]
            entries = (*(Entry(cell.text, cell.mean) for cell in cells), _seconds_entry(None))
            lines.append((CONSTANT, entries))
        for row in self.rows:
            lines.append((row, self._our_entries(row)))
            if self.paper is not None and self.differences.get(row) == []:
                lines.append((f"{row} (paper)", self._paper_entries(self.paper, row)))
        yield Sheet(self.model, (self.model, *head), tuple(lines))
        if any(cell.values for cell in self.aucs.values()):
            areas = tuple((row, self._auc_entries(row)) for row in self.rows)
            yield Sheet(f"{self.model}: {AUC}", (f"{self.model}, AUC", *self.tasks), areas)
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

    def _auc_entries(self, row: str) -> tuple[Entry, ...]:
        cells = [self.aucs[row, task] for task in self.tasks]
        return tuple(Entry(cell.text, cell.mean) for cell in cells)

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
    """Return one table for each model of a study."""
    paper = paper_table(spec.name)
    tables = []
    for model, runs in frame.groupby("model", sort=False):
        rows, tasks = (tuple(runs[column].unique()) for column in ("row", "task"))
        groups = dict(list(runs.groupby(["row", "task"], sort=False)))
        pairs = [(row, task) for row in rows for task in tasks]
        cells = {pair: _cell(groups[pair], "test") for pair in pairs}
        aucs = {pair: _cell(groups[pair], "auc") for pair in pairs}
        timed = runs.dropna(subset="seconds_per_evaluation")
        by_row = timed.groupby("row", sort=False)["seconds_per_evaluation"]
        seconds = {str(row): mean(values.astype(float)) for row, values in by_row}
        constant = {str(task): _constant(part) for task, part in runs.groupby("task", sort=False)}
        differences = {} if paper is None else _differences(paper, plan, runs)
        found = (cells, aucs, seconds, constant, paper, differences)
        tables.append(StudyTable(str(model), rows, tasks, *found))
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


def _cell(runs: pd.DataFrame, column: str) -> Cell:
    ended = runs[runs["finished"].astype(bool)]
    values = ended["test"] if column == "test" else ended[column].dropna()
    return Cell(tuple(100 * float(value) for value in values), len(runs))


def comma_separated(tables: Iterable[StudyTable]) -> str:
    """Return CSV text with a line for each model, row and task, and the value of every seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measured = ["mean", "deviation", "seeds", "planned", "values", "seconds_per_evaluation"]
    tables = list(tables)
    area = ["auc"] if any(cell.values for table in tables for cell in table.aucs.values()) else []
    writer.writerow(["model", "row", "task", *measured, "paper_model", "paper_mean", *area])
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
                writer.writerow([table.model, row, task, *ours, *papers, *auc])
    return text.getvalue()
