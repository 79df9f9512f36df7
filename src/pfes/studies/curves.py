"""Training loss over evaluations: of every row, the median over its seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore

History = list[dict[str, Any]]
POINTS = 200  # of a curve, at most


@dataclass(frozen=True)
class Curve:
    """One row's loss as a part of its first value, so that different losses can share an axis."""

    row: str
    evaluations: list[int]
    losses: list[float]


@dataclass(frozen=True)
class Panel:
    """The curves of one model and task."""

    model: str
    task: str
    curves: tuple[Curve, ...]


def make_panels(plan: list[PlannedRun], finished: Iterable[int], store: FolderStore) -> list[Panel]:
    """Return a panel for each model and task that has something to show.

    RLPrompt's loss is a negative reward, has no part of its first value, and is left out; of a
    run that tried several β, the one it chose is shown, as losses under another differ.
    """
    found: dict[tuple[str, str], dict[str, list[History]]] = {}
    for number in finished:
        run = plan[number]
        history = with_losses(store.history(run.folder).chosen_history())
        if history and history[0]["best_loss"] > 0:
            rows = found.setdefault((run.model_name, run.task_name), {})
            rows.setdefault(run.label, []).append(history)
    return [
        Panel(model, task, tuple(_median(row, seeds) for row, seeds in rows.items()))
        for (model, task), rows in found.items()
    ]


def _median(row: str, seeds: list[History]) -> Curve:
    parts = [
        [line | {"part": line["best_loss"] / seed[0]["best_loss"]} for line in seed]
        for seed in seeds
    ]
    ends, medians = medians_over_seeds(parts, ["part"])
    return Curve(row, ends, medians["part"])


def with_losses(history: History) -> History:
    """Return the steps from the first candidate on whose loss was a number."""
    return [line for line in history if line["best_loss"] is not None]


def medians_over_seeds(
    seeds: list[History], names: Iterable[str]
) -> tuple[list[int], dict[str, list[float]]]:
    """Return evaluations, and at each the medians over seeds of what a history calls `names`."""
    shortest = min(seeds, key=len)
    places = np.unique(np.linspace(0, len(shortest) - 1, POINTS).astype(int))
    ends = [shortest[place]["evaluations"] for place in places]
    found = {}
    for name in names:
        curves = [
            np.interp(ends, [line["evaluations"] for line in seed], [line[name] for line in seed])
            for seed in seeds
        ]
        found[name] = np.median(curves, axis=0).tolist()
    return ends, found
