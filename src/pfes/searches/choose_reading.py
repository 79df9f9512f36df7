"""Choosing a reading: the rungs of the ladder, each with a weight that cross-validation gives it.

Every rung's scores are linear in the answers, so their weighted mean is a reading of the same form.
A rung that is worse by a clear amount of loss gets next to no weight; where the examples cannot
tell, the mean hedges between a simple reading and one of many words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Ints
from pfes.searches.fit_reading import Features, fit_reading
from pfes.searches.log_space import Doubles, log_softmax
from pfes.searches.reading import PLAIN, HeldOut, Reading, Rung
from pfes.seeds import stream

STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)  # of the ridge, strong to weak
FOLDS = 5
REPEATS = 2
SHARPNESS = 0.3  # a rung's weight is exp(−SHARPNESS · examples · what its loss exceeds the best by)
LEAST_WEIGHT = 0.01  # a rung with less is left out
Trial = tuple[Rung, float]

LADDER: tuple[Trial, ...] = (
    ("offset", 1.0), ("slope", 1.0), *(("words", strength) for strength in STRENGTHS),
)  # fmt: skip


def choose_reading(
    logprobs: NDArray[np.floating[Any]],
    labels: Ints,
    words: tuple[int, ...],
    trials: Sequence[Trial] = LADDER,
    center: Doubles | None = None,
) -> Reading:
    """Fit every rung, and return their mean with weights by cross-validated loss.

    `logprobs` is `(examples, labels + words)`. The order of the examples does not matter.
    """
    count = logprobs.shape[1] - len(words)
    order = np.lexsort((*logprobs.T[:count], labels))
    answers, given = logprobs[order], labels[order]
    examples = _Examples(answers, given, words, center)
    held_out = np.stack([examples.held_out_scores(trial) for trial in trials])
    losses = np.array([_loss(scores, given) for scores in held_out])
    weights = np.exp(-SHARPNESS * len(labels) * (losses - losses.min()))
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0
    weights /= weights.sum()
    parts = [
        (weight, examples.fit(trial))
        for weight, trial in zip(weights.tolist(), trials, strict=True)
        if weight > 0
    ]
    names = [_name(*trial) for trial in trials]
    alone = None
    if "offset" in names:
        loss = float(losses[names.index("offset")])
        alone = replace(examples.fit(("offset", 1.0)), loss=loss)
    mixed = np.tensordot(weights, held_out, axes=1)  # (repeats, examples, labels)
    back = np.argsort(order)
    return replace(
        _mean(parts),
        trials=dict(zip(names, losses.tolist(), strict=True)),
        shares=dict(zip(names, weights.tolist(), strict=True)),
        loss=_loss(mixed, given),
        plain_loss=_loss(PLAIN.scores(examples.own)[None], given),
        offset_alone=alone,
        held_out=HeldOut(logprobs[:, :count], mixed[:, back]),
    )


def _mean(parts: Sequence[tuple[float, Reading]]) -> Reading:
    """Return the reading whose scores are the weighted mean of those of the parts."""
    rungs = {reading.rung for _, reading in parts}
    rung: Rung = rungs.pop() if len(rungs) == 1 else "mixed"
    slope = sum(weight * reading.slope for weight, reading in parts)
    offsets = np.sum([weight * _given(reading.offsets) for weight, reading in parts], axis=0)
    worded = [(weight, reading) for weight, reading in parts if reading.weights is not None]
    if not worded:
        return Reading(rung, slope, offsets)
    first = worded[0][1]  # all of them have the same words
    summed = np.sum([weight * _given(reading.weights) for weight, reading in worded], axis=0)
    return Reading(rung, slope, offsets, first.words, first.centers, summed, first.spreads)


def _given(array: Doubles | None) -> Doubles:
    assert array is not None
    return array


def _name(rung: Rung, strength: float) -> str:
    return f"{rung} {strength:g}" if rung == "words" else rung


def _loss(scores: Doubles, labels: Ints) -> float:
    """Return the mean cross-entropy of scores `(repeats, examples, labels)`."""
    return float(-log_softmax(scores)[:, np.arange(len(labels)), labels].mean())


@dataclass(frozen=True)
class _Examples:
    """What every rung is fitted to."""

    answers: NDArray[np.floating[Any]]  # (examples, labels + words)
    labels: Ints
    words: tuple[int, ...]
    center: Doubles | None
    # of parts of the examples, by what is in them: every strength of the ridge has the same ones
    features: dict[bytes, Features] = field(default_factory=dict)

    @property
    def own(self) -> NDArray[np.floating[Any]]:
        """The log-probabilities of the labels' own words."""
        return self.answers[:, : self.answers.shape[1] - len(self.words)]

    def fit(self, trial: Trial, part: Any = slice(None)) -> Reading:
        """Fit a rung to all examples, or to a part of them."""
        rung, strength = trial
        labels = self.labels[part]
        if rung == "words":
            key = np.arange(len(self.labels))[part].tobytes()
            answers = self.answers[part]
            if key not in self.features:
                self.features[key] = Features(answers)
            settings = (self.words, strength, self.center, self.features[key])
            return fit_reading(answers, labels, rung, *settings)
        return fit_reading(self.own[part], labels, rung, center=self.center)

    def held_out_scores(self, trial: Trial) -> Doubles:
        """Return scores of readings fitted without the example: `(repeats, examples, labels)`."""
        seen = self.answers if trial[0] == "words" else self.own
        scores = np.zeros((REPEATS, *self.own.shape))
        for repeat in range(REPEATS):
            folds = stratified_folds(self.labels, repeat)
            for fold in range(FOLDS):
                inside = folds != fold
                if inside.all():
                    continue
                if inside.any():
                    reading = self.fit(trial, inside)
                    scores[repeat, ~inside] = reading.scores(seen[~inside])
                else:  # all examples are in one fold, so there is nothing to fit to
                    scores[repeat] = PLAIN.scores(self.own)
        return scores


def stratified_folds(labels: Ints, repeat: int) -> Ints:
    """Return the fold of each example: the examples of a label are spread over all folds."""
    rng = stream(repeat, "folds")
    folds = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        folds[rng.permutation(members)] = (np.arange(len(members)) + rng.integers(FOLDS)) % FOLDS
    return folds
