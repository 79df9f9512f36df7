"""BDPL: the simplex, the gradient, and learning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pfes.optimizers.bdpl import BDPL, CLIP, project_to_simplex


@given(arrays(np.float64, (3, 5), elements=st.floats(-2, 2)))
def test_projection_is_the_nearest_distribution(rows: np.ndarray) -> None:
    found = project_to_simplex(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (found >= 0).all()
    distance = ((found - rows) ** 2).sum(axis=1)
    for other in np.random.default_rng(0).dirichlet(np.ones(5), 200):
        assert (distance <= ((other - rows) ** 2).sum(axis=1) + 1e-9).all()


def test_one_step_follows_the_formula() -> None:
    search = BDPL([5, 6, 7, 8], length=3, learning_rate=1e-3, population=6, seed=1)
    drawn = search.ask() - 5
    losses = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0])
    before = search.probabilities.copy()
    search.tell(losses)
    gradient = np.zeros_like(before)
    for k in range(6):
        for i in range(3):
            slope = 1 / before[i, drawn[k, i]]
            gradient[i, drawn[k, i]] += (losses[k] - losses.mean()) / 5 * slope
    gradient *= min(1, CLIP / np.linalg.norm(gradient))
    np.testing.assert_allclose(search.probabilities, project_to_simplex(before - 1e-3 * gradient))


def test_a_prompt_without_a_finite_loss_teaches_nothing() -> None:
    search = BDPL([1, 2], length=1, population=3)
    search.ask()
    search.tell([np.nan, np.inf, 1.0])
    np.testing.assert_array_equal(search.probabilities, [[0.5, 0.5]])


def test_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        BDPL([1, 2], population=1)
