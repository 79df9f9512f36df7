"""The numbers that the paper reports, to be shown beside ours."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SECONDS = "seconds_per_evaluation"
Figure = tuple[float, float | None]  # mean and deviation over five seeds, in percent


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: mean and deviation of every row on every task."""

    model: str
    budget: int
    rows: dict[str, dict[str, Figure]]
    seconds: dict[str, float]  # per function evaluation, by row

    def agrees(self, model: str, budgets: set[int]) -> bool:
        """Return whether runs of a model with these budgets can be compared with the table."""
        return model == self.model and budgets <= {self.budget}


@cache
def _paper_numbers() -> dict[str, Any]:
    text = files("pfes.reporting").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def paper_analysis(name: str) -> dict[str, Any]:
    """Return the paper's numbers for an analysis, with its model and budget."""
    content: dict[str, Any] = _paper_numbers()[f"analysis: {name}"]  # a study's name has no colon
    return content


@cache
def paper_table(study: str) -> PaperTable | None:
    """Return the paper's table that a study repeats, or None if there is none."""
    content = _paper_numbers().get(study)
    if content is None:
        return None
    rows, seconds = {}, {}
    for name, row in content["rows"].items():
        if SECONDS in row:
            seconds[name] = row[SECONDS]
        pairs = {task: pair for task, pair in row.items() if task != SECONDS}
        rows[name] = {task: (mean, deviation) for task, (mean, deviation) in pairs.items()}
    return PaperTable(content["model"], content["budget"], rows, seconds)
