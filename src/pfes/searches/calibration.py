"""How far the probabilities of labels can be trusted."""

from dataclasses import dataclass

import numpy as np

from pfes.contract import Ints
from pfes.searches.log_space import Doubles

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Probabilities against what came true.

    `ece` is the expected calibration error: the mean gap between the probability of the answer and
    how often it is right, over ten equal bins of that probability. `brier` is the mean squared
    distance between the probabilities of all labels and the truth (0 is best).
    """

    ece: float
    brier: float
    confidences: list[float]  # mean probability of the answer in each bin that is not empty
    accuracies: list[float]  # how often it is right there
    counts: list[int]


def calibration(probabilities: Doubles, labels: Ints) -> Calibration | None:
    """Compare probabilities `(examples, labels)` with the true labels; None where some are NaN."""
    if not len(labels) or not np.isfinite(probabilities).all():
        return None
    truth = np.zeros_like(probabilities)
    truth[np.arange(len(labels)), labels] = 1
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    filled = [bins == i for i in range(BINS) if (bins == i).any()]
    confidences = [float(confidence[part].mean()) for part in filled]
    accuracies = [float(right[part].mean()) for part in filled]
    counts = [int(part.sum()) for part in filled]
    gaps = np.abs(np.array(confidences) - np.array(accuracies))
    return Calibration(
        ece=float(gaps @ np.array(counts) / len(labels)),
        brier=float(((probabilities - truth) ** 2).sum(axis=1).mean()),
        confidences=confidences,
        accuracies=accuracies,
        counts=counts,
    )
