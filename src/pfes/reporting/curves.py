"""Training loss over evaluations, as the median over the seeds of every row."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pfes.runs.saved import History
from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore

POINTS = 200  # a curve has at most this many points


@dataclass(frozen=True)
class Curve:
    """A row's loss divided by its first value, so that different losses can share an axis."""

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
    """Return a panel for each model and task that has a finished search.

    RLPrompt is left out, as its loss is a negative reward, which cannot be divided by its first
    value. For a run that tried several β, the search with the chosen β is shown, as losses with
    different β cannot be compared.
    """
    panels: dict[tuple[str, str], dict[str, list[History]]] = {}
    for number in finished:
        run = plan[number]
        history = with_losses(store.saved(run.folder).chosen_history)
        if history and history[0]["best_loss"] > 0:
            rows = panels.setdefault((run.model_name, run.task_name), {})
            rows.setdefault(run.label, []).append(history)
    return [
        Panel(model, task, tuple(_median(row, histories) for row, histories in rows.items()))
        for (model, task), rows in panels.items()
    ]


def _median(row: str, histories: list[History]) -> Curve:
    relative = [
        [line | {"part": line["best_loss"] / history[0]["best_loss"]} for line in history]
        for history in histories
    ]
    ends, medians = medians_over_seeds(relative, ["part"])
    return Curve(row, ends, medians["part"])


def with_losses(history: History) -> History:
    """Return the history without its first steps, as long as no candidate had a finite loss."""
    return [line for line in history if line["best_loss"] is not None]


def medians_over_seeds(
    histories: list[History], names: Iterable[str]
) -> tuple[list[int], dict[str, list[float]]]:
    """Return evaluation counts and, for each of `names`, the medians over seeds at these counts.

    `histories` has one history for each seed; `names` are keys of its lines.
    """
    shortest = min(histories, key=len)
    indices = np.unique(np.linspace(0, len(shortest) - 1, POINTS).astype(int))
    ends = [shortest[i]["evaluations"] for i in indices]
    medians = {}
    for name in names:
        curves = [
            np.interp(
                ends, [line["evaluations"] for line in history], [line[name] for line in history]
            )
            for history in histories
        ]
        medians[name] = np.median(curves, axis=0).tolist()
    return ends, medians
