"""Training loss over evaluations, as the median over the seeds of every row."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pfes.methods import get_method
from pfes.runs.saved import History, SavedRun
from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore

POINTS = 200  # a curve has at most this many points
ENTROPY = "best_cross_entropy"  # of a step: that of the candidate with the best loss so far


@dataclass(frozen=True)
class Curve:
    """A row's training loss: the cross-entropy of its best candidate so far."""

    row: str
    evaluations: list[int]
    losses: list[float]


@dataclass(frozen=True)
class Panel:
    """The curves of one model and task, all of the same loss."""

    model: str
    task: str
    loss: str
    curves: tuple[Curve, ...]


def make_panels(plan: list[PlannedRun], finished: Iterable[int], store: FolderStore) -> list[Panel]:
    """Return a panel for each model and task that has a finished search.

    Rows whose answers are read in different ways have panels of their own. For a run that tried
    several β, the search with the chosen β is shown.
    """
    panels: dict[tuple[str, str, str], dict[str, list[History]]] = {}
    for number in finished:
        run = plan[number]
        history = with_entropies(store.saved(run.folder))
        if history:
            loss = loss_name(run.config.reading)
            rows = panels.setdefault((run.model_name, run.task_name, loss), {})
            rows.setdefault(run.label, []).append(history)
    return [
        Panel(*names, tuple(_median(row, histories) for row, histories in rows.items()))
        for names, rows in panels.items()
    ]


def _median(row: str, histories: list[History]) -> Curve:
    ends, medians = medians_over_seeds(histories, [ENTROPY])
    return Curve(row, ends, medians[ENTROPY])


def loss_name(reading: str) -> str:
    """Return what the cross-entropy of a search is called: with a reading it is another one."""
    return "cross-entropy" if reading == "plain" else "cross-entropy after the best offsets"


def with_entropies(run: SavedRun) -> History:
    """Return the steps of a finished run from the first finite loss on, with their cross-entropy.

    Runs from before that was recorded have it only where it is what they minimised.
    """
    minimised = get_method(run.result.method).loss == "ce"
    steps = (
        line | {ENTROPY: line.get(ENTROPY, line["best_loss"] if minimised else None)}
        for line in run.chosen_history
    )
    return [line for line in steps if line[ENTROPY] is not None]


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
