"""BDPL: the simplex, the gradient, and learning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pfes.optimizers.bdpl import BDPL, CLIP, WEIGHT_DECAY, project_to_simplex


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
    # the first step of AdamW: bias correction makes the moments the gradient and its square
    stepped = before * (1 - 1e-3 * WEIGHT_DECAY) - 1e-3 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(search.probabilities, project_to_simplex(stepped))


LESS = 10  # times: how much further AdamW lowers the expected loss than plain gradient steps


def test_it_lowers_its_objective_much_further_than_plain_gradient_steps() -> None:
    """At the authors' settings: 10 positions, 200 tokens, 20 prompts, a rate of 1e-4."""
    costs = np.random.default_rng(0).standard_normal((10, 200))
    positions = np.arange(10)
    search = BDPL(range(200), 10, 1e-4, 20, seed=0)
    plain, rng = np.full_like(costs, 1 / 200), np.random.default_rng(0)
    begun = costs.mean()
    for _ in range(250):
        search.tell(costs[positions, search.ask()].mean(axis=1))
        drawn = np.stack([rng.choice(200, 20, p=row) for row in plain], axis=1)
        losses = costs[positions, drawn].mean(axis=1)
        gradient = np.zeros_like(plain)
        for loss, indices in zip(losses, drawn, strict=True):
            gradient[positions, indices] += (loss - losses.mean()) / 19 / plain[positions, indices]
        gradient *= min(1, CLIP / np.linalg.norm(gradient))
        plain = project_to_simplex(plain - 1e-4 * gradient)
    gain, plain_gain = (
        begun - (p * costs).sum(axis=1).mean() for p in (search.probabilities, plain)
    )
    assert gain > LESS * plain_gain > 0


def test_it_goes_on_where_it_stood() -> None:
    def advance(search: BDPL, generations: int) -> None:
        for _ in range(generations):
            search.tell((search.ask() * [1, -1]).sum(axis=1))

    whole = BDPL(range(9), length=2, learning_rate=1e-2)
    advance(whole, 6)
    first, second = (BDPL(range(9), length=2, learning_rate=1e-2) for _ in range(2))
    advance(first, 3)
    second.load_state(first.state())
    advance(second, 3)
    np.testing.assert_array_equal(second.probabilities, whole.probabilities)
    np.testing.assert_array_equal(second.ask(), whole.ask())


def test_a_prompt_without_a_finite_loss_teaches_nothing() -> None:
    search = BDPL([1, 2], length=1, population=3)
    search.ask()
    search.tell([np.nan, np.inf, 1.0])
    np.testing.assert_array_equal(search.probabilities, [[0.5, 0.5]])


def test_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        BDPL([1, 2], population=1)
