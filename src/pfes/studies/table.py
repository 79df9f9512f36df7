"""The table of a study: rows × tasks, mean and deviation over seeds; Markdown, LaTeX, CSV."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, stdev

from pfes.result import Result
from pfes.studies.plan import PlannedRun

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """What the seeds of one row gave on one task, in percent as in the paper."""

    values: tuple[float, ...]
    planned: int  # seeds that there should be

    @property
    def mean(self) -> float | None:
        return mean(self.values) if self.values else None

    def text(self, separator: str = " ± ") -> str:
        """Return mean and deviation; how many seeds, where some are missing."""
        if not self.values:
            return MISSING
        deviation = f"{separator}{stdev(self.values):.2f}" if len(self.values) > 1 else ""
        part = "" if len(self.values) == self.planned else f" ({len(self.values)}/{self.planned})"
        return f"{mean(self.values):.2f}{deviation}{part}"


@dataclass(frozen=True)
class StudyTable:
    """Rows × tasks for one model."""

    title: str
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    def rank(self, row: str, task: str) -> int | None:
        """Return 1 for the best mean of a task, 2 for the second; ties share a rank."""
        own = self.cells[row, task].mean
        if own is None:
            return None
        others = {self.cells[other, task].mean for other in self.rows}
        better = {value for value in others if value is not None and value > own}
        return 1 + len(better)

    def markdown(self) -> str:
        styles: dict[int | None, Callable[[str], str]] = {
            1: lambda text: f"**{text}**", 2: lambda text: f"<u>{text}</u>",
        }  # fmt: skip
        lines = [f"| {self.title} | " + " | ".join(self.tasks) + " |"]
        lines.append("|---" * (len(self.tasks) + 1) + "|")
        for row in self.rows:
            texts = [
                styles.get(self.rank(row, task), str)(self.cells[row, task].text())
                for task in self.tasks
            ]
            lines.append(f"| {_escape_markdown(row)} | " + " | ".join(texts) + " |")
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """Return a table that needs the package booktabs."""
        styles: dict[int | None, Callable[[str], str]] = {
            1: lambda text: rf"\textbf{{{text}}}", 2: lambda text: rf"\underline{{{text}}}",
        }  # fmt: skip
        lines = [r"\begin{tabular}{l" + "c" * len(self.tasks) + "}", r"\toprule"]
        lines += [" & ".join(map(_escape_latex, (self.title, *self.tasks))) + r" \\", r"\midrule"]
        for row in self.rows:
            texts = []
            for task in self.tasks:
                text = self.cells[row, task].text(r" $\pm$ ").replace(MISSING, "--")
                texts.append(styles.get(self.rank(row, task), str)(text))
            lines.append(" & ".join([_escape_latex(row), *texts]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """Return one line for each row and task, with every seed's value."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["model", "row", "task", "mean", "deviation", "seeds", "planned", "values"])
        for row in self.rows:
            for task in self.tasks:
                cell = self.cells[row, task]
                deviation = stdev(cell.values) if len(cell.values) > 1 else None
                figures = [cell.mean, deviation, len(cell.values), cell.planned]
                writer.writerow([self.title, row, task, *figures, " ".join(map(str, cell.values))])
        return text.getvalue()


def make_tables(plan: list[PlannedRun], results: dict[int, Result]) -> list[StudyTable]:
    """Return one table for each model; `results` are by place in the plan."""
    tables = []
    for model in dict.fromkeys(run.config.model for run in plan):
        own = [(i, run) for i, run in enumerate(plan) if run.config.model == model]
        rows = tuple(dict.fromkeys(run.label for _, run in own))
        tasks = tuple(dict.fromkeys(run.task_name for _, run in own))
        cells = {}
        for row in rows:
            for task in tasks:
                places = [i for i, run in own if (run.label, run.task_name) == (row, task)]
                values = tuple(100 * results[i].test for i in places if i in results)
                cells[row, task] = Cell(values, len(places))
        tables.append(StudyTable(own[0][1].model_name, rows, tasks, cells))
    return tables


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def _escape_latex(text: str) -> str:
    table = {"\\": r"\textbackslash{}", "β": r"$\beta$", "σ": r"$\sigma$", "d̃": r"$\tilde d$"}
    table |= {letter: "\\" + letter for letter in "&%$#_{}"}
    table |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(table.get(letter, letter) for letter in text)
