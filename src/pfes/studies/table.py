"""The table of a study: rows × tasks, mean and deviation over seeds, the paper's figures beside."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev

from pfes.methods import get_method
from pfes.result import Result
from pfes.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.paper import PaperTable, paper_table
from pfes.studies.plan import PlannedRun, StudySpec

SECONDS = "s/FE"


@dataclass(frozen=True)
class Cell:
    """What the seeds of one row gave on one task, in percent as in the paper."""

    values: tuple[float, ...]
    planned: int  # seeds that there should be

    @property
    def mean(self) -> float | None:
        return mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """Mean and deviation; how many seeds, where some are missing."""
        part = "" if len(self.values) == self.planned else f" ({len(self.values)}/{self.planned})"
        return MISSING if self.mean is None else figure_text(self.mean, self.deviation) + part


@dataclass(frozen=True)
class StudyTable:
    """Rows × tasks for one model."""

    model: str
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    seconds: dict[str, float]  # of a function evaluation, mean over what the row ran
    paper: PaperTable | None
    alike: bool  # whether model and budget are the paper's

    def rank(self, row: str, task: str) -> int | None:
        """Return 1 for the best mean of a task, 2 for the second; ties share a rank."""
        own = self.cells[row, task].mean
        if own is None:
            return None
        others = {self.cells[other, task].mean for other in self.rows}
        better = {value for value in others if value is not None and value > own}
        return 1 + len(better)

    def sheets(self) -> Iterator[Sheet]:
        """Yield our table, and the paper's where it is of another model or budget.

        Where both agree, the paper's rows stand in ours, without a rank.
        """
        head = (*self.tasks, SECONDS)
        lines = []
        for row in self.rows:
            lines.append((row, self._own(row)))
            if self.alike and self.paper is not None and row in self.paper.rows:
                lines.append((f"{row} (paper)", self._of_paper(self.paper, row)))
        yield Sheet(self.model, (self.model, *head), tuple(lines))
        if self.paper is not None and not self.alike:
            theirs = [
                (row, self._of_paper(self.paper, row))
                for row in self.rows
                if row in self.paper.rows
            ]
            caption = (
                f"The paper's figures, of another model or budget: {self.paper.model}, "
                f"{self.paper.budget} function evaluations. Not comparable with ours."
            )
            if theirs:
                yield Sheet(caption, (f"{self.paper.model} (paper)", *head), tuple(theirs))

    def _own(self, row: str) -> tuple[Entry, ...]:
        found = []
        for task in self.tasks:
            cell = self.cells[row, task]
            note = "seeds: " + ", ".join(f"{value:.2f}" for value in cell.values)
            found.append(Entry(cell.text, cell.mean, self.rank(row, task), note))
        return (*found, _seconds_entry(self.seconds.get(row)))

    def _of_paper(self, paper: PaperTable, row: str) -> tuple[Entry, ...]:
        found = []
        for task in self.tasks:
            figure = paper.rows[row].get(task)
            found.append(Entry(figure_text(*figure), figure[0]) if figure else Entry(MISSING, None))
        return (*found, _seconds_entry(paper.seconds.get(row)))


def _seconds_entry(seconds: float | None) -> Entry:
    return Entry(MISSING if seconds is None else f"{seconds:.4f}", seconds)


def make_tables(
    spec: StudySpec, plan: list[PlannedRun], results: dict[int, Result]
) -> list[StudyTable]:
    """Return one table for each model; `results` are by place in the plan."""
    tables = []
    paper = paper_table(spec.name)
    for model in dict.fromkeys(run.config.model for run in plan):
        own = [(i, run) for i, run in enumerate(plan) if run.config.model == model]
        rows = tuple(dict.fromkeys(run.label for _, run in own))
        tasks = tuple(dict.fromkeys(run.task_name for _, run in own))
        cells, seconds = {}, {}
        for row in rows:
            spent = [
                results[i].seconds_per_evaluation
                for i, run in own
                if run.label == row and i in results
            ]
            searched = [value for value in spent if value is not None]
            if searched:
                seconds[row] = mean(searched)
            for task in tasks:
                places = [i for i, run in own if (run.label, run.task_name) == (row, task)]
                values = tuple(100 * results[i].test for i in places if i in results)
                cells[row, task] = Cell(values, len(places))
        name = own[0][1].model_name
        budgets = {r.config.budget for _, r in own if get_method(r.config.method).optimizer}
        alike = paper is not None and paper.agrees(name, budgets)
        tables.append(StudyTable(name, rows, tasks, cells, seconds, paper, alike))
    return tables


def comma_separated(tables: Iterable[StudyTable]) -> str:
    """Return one line for each model, row and task, with every seed's value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ["mean", "deviation", "seeds", "planned", "values", "seconds_per_evaluation"]
    writer.writerow(["model", "row", "task", *figures, "paper_model", "paper_mean"])
    for table in tables:
        for row in table.rows:
            for task in table.tasks:
                cell = table.cells[row, task]
                values = " ".join(map(str, cell.values))
                own = [cell.mean, cell.deviation, len(cell.values), cell.planned, values]
                paper = table.paper and table.paper.rows.get(row, {}).get(task)
                theirs = [table.paper.model, paper[0]] if table.paper and paper else [None, None]
                own += [table.seconds.get(row)]
                writer.writerow([table.model, row, task, *own, *theirs])
    return text.getvalue()
