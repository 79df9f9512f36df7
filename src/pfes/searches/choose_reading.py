"""Choosing a reading: the lowest rung that cross-validation cannot tell from the best."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Ints
from pfes.searches.fit_reading import fit_reading
from pfes.searches.log_space import Doubles
from pfes.searches.reading import Reading, Rung
from pfes.seeds import stream

STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of the ridge, from strong to weak
FOLDS = 5
REPEATS = 2
Trial = tuple[Rung, float]

LADDER: tuple[Trial, ...] = (
    ("plain", 1.0), ("offset", 1.0), ("slope", 1.0), *(("words", s) for s in STRENGTHS),
)  # fmt: skip


def choose_reading(
    logprobs: NDArray[np.floating[Any]],
    labels: Ints,
    words: tuple[int, ...],
    trials: Sequence[Trial] = LADDER,
) -> Reading:
    """Fit the lowest rung whose cross-validated loss is within one standard error of the best.

    `logprobs` is `(examples, labels + words)`. Differences are paired over the examples. The order
    of the examples does not matter.
    """
    order = np.lexsort((*logprobs.T[: logprobs.shape[1] - len(words)], labels))
    answers, given = logprobs[order], labels[order]
    losses = np.stack([_validated(answers, given, words, *trial) for trial in trials])
    means = losses.mean(axis=1)  # (trials,)
    gaps = losses - losses[means.argmin()]
    errors = gaps.std(axis=1, ddof=1) / np.sqrt(len(labels))
    lowest = int(np.flatnonzero(gaps.mean(axis=1) <= errors)[0])
    rung, strength = trials[lowest]
    reading = fit_reading(answers, given, rung, words if rung == "words" else (), strength)
    if rung != "words" and words:
        reading = fit_reading(answers[:, : -len(words)], given, rung)
    tried = {_name(*trial): float(mean) for trial, mean in zip(trials, means, strict=True)}
    return replace(reading, trials=tried)


def _name(rung: Rung, strength: float) -> str:
    return f"{rung} {strength:g}" if rung == "words" else rung


def _validated(
    logprobs: NDArray[np.floating[Any]],
    labels: Ints,
    words: tuple[int, ...],
    rung: Rung,
    strength: float,
) -> Doubles:
    """Return each example's loss under readings that were fitted without it."""
    own = words if rung == "words" else ()
    answers = logprobs if rung == "words" or not words else logprobs[:, : -len(words)]
    losses = np.zeros(len(labels))
    for repeat in range(REPEATS):
        folds = stratified_folds(labels, repeat)
        for fold in range(FOLDS):
            inside = folds != fold
            outside = np.flatnonzero(~inside)
            if not len(outside):
                continue
            reading = fit_reading(answers[inside], labels[inside], rung, own, strength)
            logs = reading.log_probabilities(answers[outside])
            losses[outside] -= logs[np.arange(len(outside)), labels[outside]]
    return losses / REPEATS


def stratified_folds(labels: Ints, repeat: int) -> Ints:
    """Return the fold of each example: the examples of a label are spread over all folds."""
    rng = stream(repeat, "folds")
    folds = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        folds[rng.permutation(members)] = (np.arange(len(members)) + rng.integers(FOLDS)) % FOLDS
    return folds
