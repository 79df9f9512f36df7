"""`--sigma0 auto`: a step size without a unit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfes.contract import Floats
from pfes.searches.log_space import Doubles
from pfes.searches.step_size import FLATTEST, TARGET, StepSize, choose_step_size


def linear(scale: float, constants: float = 0.0) -> tuple[Floats, object]:
    """Answers that change in proportion to the vector, in an embedding of some scale."""
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((40, 3, 50)) / scale  # (examples, labels, d)
    begin = rng.standard_normal((40, 3)) - 5

    def answers(vector: Floats) -> Doubles:
        return begin + slopes @ vector.astype(np.float64) + constants * np.arange(3)

    return np.zeros(50, dtype=np.float32), answers


def no_loss(answers: Doubles) -> float:
    return 0.0


def choose_sigma0(answers: object, start: Floats, guess: float, seed: int) -> float:
    return choose_step_size(answers, no_loss, start, guess, seed).sigma0


@pytest.mark.parametrize("guess", [1e-3, 0.1, 10.0])
def test_a_step_changes_the_answers_by_the_target(guess: float) -> None:
    start, answers = linear(1.0)
    sigma0 = choose_sigma0(answers, start, guess, seed=0)
    changes = []
    for seed in range(20):
        direction = np.random.default_rng(seed).standard_normal(50).astype(np.float32)
        moved = answers(np.float32(sigma0) * direction) - answers(start)
        relative = moved - moved.mean(axis=1, keepdims=True)
        changes.append(np.mean((relative - relative.mean(axis=0)) ** 2))
    assert np.sqrt(np.mean(changes)) == pytest.approx(TARGET, rel=0.35)


@given(st.floats(-3, 3), st.integers(0, 5))
def test_the_scale_of_an_embedding_is_that_of_its_step(exponent: float, seed: int) -> None:
    scale = 10.0**exponent
    one, many = (choose_sigma0(linear(s)[1], linear(s)[0], 0.07 * s, seed) for s in (1.0, scale))
    assert many / one == pytest.approx(scale, rel=1e-3)


def test_a_constant_for_each_label_changes_nothing() -> None:
    start, plain = linear(1.0)
    _, shifted = linear(1.0, constants=4.0)
    assert choose_sigma0(shifted, start, 0.1, 0) == pytest.approx(
        choose_sigma0(plain, start, 0.1, 0)
    )


def test_answers_that_never_change_end_in_a_finite_step() -> None:
    sigma0 = choose_sigma0(lambda vector: np.full((4, 2), -1.0), np.zeros(5, np.float32), 0.1, 0)
    assert 0 < sigma0 <= 1e6


def test_answers_that_are_no_numbers_shorten_the_step() -> None:
    def answers(vector: Floats) -> Doubles:
        return np.full((4, 2), -1.0 if np.abs(vector).max() < 1e-2 else np.nan)

    assert choose_sigma0(answers, np.zeros(5, np.float32), 1.0, 0) < 1.0


@given(st.floats(-3, 3), st.integers(0, 5))
def test_a_learning_rate_is_that_of_a_usual_step(exponent: float, seed: int) -> None:
    """In an embedding ten times as large, slopes are ten times as flat."""

    def loss(answers: Doubles) -> float:
        return float(answers[:, 0].mean())

    scale = 10.0**exponent
    found = []
    for size in (1.0, scale):
        start, answers = linear(size)
        found.append(choose_step_size(answers, loss, start, 0.07 * size, seed))
    one, many = found
    assert many.slope == pytest.approx(one.slope / scale, rel=1e-3)
    assert many.learning_rate == pytest.approx(one.learning_rate * scale**2, rel=1e-3)
    if one.slope * one.sigma0 > FLATTEST * TARGET:
        assert one.learning_rate * one.slope == pytest.approx(one.sigma0)


def test_a_flat_loss_has_a_finite_learning_rate() -> None:
    assert StepSize(0.1, 0.0).learning_rate == pytest.approx(0.1**2 / (FLATTEST * TARGET))
