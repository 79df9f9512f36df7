"""The numbers that the paper reports, to be shown beside ours, and what they were made with."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pfes.config import RunConfig
from pfes.methods import get_method
from pfes.studies.plan import model_name, short_name

SECONDS = "seconds_per_evaluation"
BETA = "β = "  # in the name of a row: what follows is its weight
Figure = tuple[float, float | None]  # mean and deviation over five seeds, in percent


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: mean and deviation of every row on every task."""

    model: str
    budget: int
    prompt_length: int
    seeds: tuple[int, ...]
    test_examples: dict[str, int]  # by task
    rows: dict[str, dict[str, Figure]]
    seconds: dict[str, float]  # per function evaluation, by row
    betas: dict[str, dict[str, float]]  # of rows with a regulariser, by task
    budgets: dict[str, int]  # of rows with another one than the table's
    notes: dict[str, str]  # of rows that can never be compared: why

    def differences(self, row: str, runs: Iterable[tuple[RunConfig, float | None]]) -> list[str]:
        """Return in what runs differ from those of a row; empty if they can be compared.

        Each run comes with the number of its test examples, or None until that is known.
        """
        runs = list(runs)
        found = [self.notes[row]] if row in self.notes else []
        found += [text for run in runs for text in self._of_a_run(row, *run)]
        seeds = {config.seed for config, _ in runs}
        if seeds != set(self.seeds):
            shown = (", ".join(map(str, sorted(some))) for some in (seeds, self.seeds))
            found.append("seeds {}, not {}".format(*shown))
        return list(dict.fromkeys(found))

    def _of_a_run(self, row: str, config: RunConfig, test: float | None) -> Iterator[str]:
        task, method = short_name(config.task), get_method(config.method)
        model = model_name(config.model, config.served_name)
        if model != self.model:
            yield f"model {model}, not {self.model}"
        if method.optimizer is not None:
            budget = self.budgets.get(row, self.budget)
            if config.budget != budget:
                yield f"{config.budget} evaluations, not {budget}"
            # the paper does not say how many tokens BDPL and RLPrompt have
            length = config.prompt_length or self.prompt_length
            if method.space != "tokens" and length != self.prompt_length:
                yield f"{length} prompt tokens, not {self.prompt_length}"
        beta = self.betas.get(row, {}).get(task)
        if beta is not None and config.beta != beta:
            yield f"β {_number(config.beta)} on {task}, not {beta:g}"
        if config.reading != "plain":
            yield f"reading {config.reading}, not plain"
        wanted = self.test_examples.get(task)
        if wanted is not None and test is not None and test != wanted:
            yield f"{test:g} test examples of {task}, not {wanted}"


def _number(beta: float | str | None) -> str:
    return f"{beta:g}" if isinstance(beta, float) else str(beta)


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
    rows, seconds, betas = {}, {}, content.get("beta", {})
    for name, row in content["rows"].items():
        if SECONDS in row:
            seconds[name] = row[SECONDS]
        pairs = {task: pair for task, pair in row.items() if task != SECONDS}
        rows[name] = {task: (mean, deviation) for task, (mean, deviation) in pairs.items()}
        if BETA in name:
            betas[name] = dict.fromkeys(pairs, float(name.rpartition(BETA)[2]))
    return PaperTable(
        content["model"],
        content["budget"],
        content["prompt_length"],
        tuple(content["seeds"]),
        content["test_examples"],
        rows,
        seconds,
        betas,
        content.get("budgets", {}),
        content.get("notes", {}),
    )
