"""Expected calibration error and Brier score."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from pfes.searches.calibration import calibration


def test_a_small_case_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.35, 0.65], [0.0, 1.0]])
    judged = calibration(probabilities, np.array([0, 1, 1, 1]))
    assert judged is not None
    assert judged.confidences == pytest.approx([0.65, (0.9 + 0.9 + 1.0) / 3])
    assert judged.accuracies == pytest.approx([1.0, 2 / 3])
    assert judged.counts == [1, 3]
    assert judged.ece == pytest.approx((0.35 + 3 * (2.8 / 3 - 2 / 3)) / 4)


def test_the_brier_score_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), size=200)
    labels = rng.integers(4, size=200)
    judged = calibration(probabilities, labels)
    assert judged is not None
    expected = brier_score_loss(labels, probabilities, scale_by_half=False)
    assert judged.brier == pytest.approx(expected)


def test_probabilities_that_come_true_have_a_small_error() -> None:
    rng = np.random.default_rng(1)
    first = rng.random(20_000)
    labels = (rng.random(20_000) > first).astype(np.int64)
    honest = calibration(np.stack([first, 1 - first], axis=1), labels)
    sure = (first > 0.5).astype(float)
    boastful = calibration(np.stack([sure, 1 - sure], axis=1), labels)
    assert honest is not None
    assert boastful is not None
    assert honest.ece < 0.02
    assert boastful.ece == pytest.approx(0.25, abs=0.02)


def test_nothing_is_said_of_no_examples_or_of_no_numbers() -> None:
    assert calibration(np.empty((0, 2)), np.array([], dtype=np.int64)) is None
    assert calibration(np.array([[np.nan, 1.0]]), np.array([0])) is None
