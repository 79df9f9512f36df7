"""The paper's own figures, to stand beside ours."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SECONDS = "seconds_per_evaluation"
Figure = tuple[float, float | None]  # mean and deviation over five seeds, in percent


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: what it says of a row on a task."""

    model: str
    budget: int
    rows: dict[str, dict[str, Figure]]
    seconds: dict[str, float]  # of a function evaluation, by row

    def agrees(self, model: str, budgets: set[int]) -> bool:
        """Whether runs of a model with these budgets can be compared with the table."""
        return model == self.model and budgets <= {self.budget}


@cache
def _figures() -> dict[str, Any]:
    text = files("pfes.studies").joinpath("paper.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def paper_analysis(name: str) -> dict[str, Any]:
    """Return what the paper says in an analysis, with model and budget."""
    found: dict[str, Any] = _figures()[f"analysis: {name}"]  # no study can be called so
    return found


@cache
def paper_table(study: str) -> PaperTable | None:
    """Return the paper's table of what a study repeats; None if it has none."""
    content = _figures().get(study)
    if content is None:
        return None
    rows, seconds = {}, {}
    for name, figures in content["rows"].items():
        if SECONDS in figures:
            seconds[name] = figures[SECONDS]
        pairs = {task: pair for task, pair in figures.items() if task != SECONDS}
        rows[name] = {task: (mean, deviation) for task, (mean, deviation) in pairs.items()}
    return PaperTable(content["model"], content["budget"], rows, seconds)
