"""Which solution a search returns: by metric, or by loss and clearly better than its start."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from pfes.searches.validation import MARGIN, Validation, steps_ahead

LOSSES = st.lists(st.floats(0, 20), min_size=3, max_size=40)


def read(entropy: float, ahead: float, metric: float = 0.5) -> Validation:
    return Validation(metric, 1.0, 1.0, read_entropy=entropy, ahead=ahead)


@given(LOSSES, st.integers(0, 2**32 - 1))
def test_steps_ahead_are_students_t_of_paired_losses(before: list[float], seed: int) -> None:
    reference = np.array(before)
    after = reference + np.random.default_rng(seed).normal(size=len(before))
    expected = float(ttest_rel(reference, after).statistic)
    assert steps_ahead(after, reference) == pytest.approx(expected, rel=1e-6)


def test_steps_ahead_where_there_is_no_spread() -> None:
    same = np.array([0.5, 0.7])
    assert steps_ahead(same, same) == 0
    assert steps_ahead(np.array([0.5]), np.array([0.9])) == 0  # one example tells nothing
    assert steps_ahead(np.array([]), np.array([])) == 0
    assert steps_ahead(np.array([np.inf, 0.1]), same) == -np.inf
    assert steps_ahead(same, np.array([np.inf, 0.1])) == np.inf
    assert steps_ahead(np.array([np.inf, 0.1]), np.array([np.inf, 0.1])) == 0


def test_what_is_kept_is_the_lowest_loss_of_those_clearly_below_the_start() -> None:
    start = read(0.60, 0.0)
    looks = [
        read(0.40, 0.9 * MARGIN, metric=0.9),  # low, perhaps by chance
        read(0.50, 1.5 * MARGIN),
        read(0.55, 3.0 * MARGIN, metric=0.9),  # surer, but not as low
        read(0.45, 1.1 * MARGIN, metric=0.1),
        read(0.45, 1.1 * MARGIN),  # as good, but later
    ]
    kept = start
    for look in looks:
        kept = look if look.beats(kept) else kept
    assert kept is looks[3]


def test_a_start_that_is_behind_what_is_free_can_be_beaten_by_what_is_ahead_of_it() -> None:
    start, better = read(0.9, -2.0), read(0.5, 1.2)
    assert better.beats(start)
    assert not start.beats(replace(start, read_entropy=0.95))
