"""Losses of log-probabilities, against torch and the definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pfes.searches.losses import Loss, confidence_loss, cross_entropy, reward

WORDS = [3, 11, 5]


def random_logits(scale: float, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 7, 50, generator=generator, dtype=torch.float64) * scale
    labels = torch.randint(0, 3, (7,), generator=generator)
    return logits, labels.numpy()


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_cross_entropy_is_that_of_torch_over_the_words(scale: float) -> None:
    logits, labels = random_logits(scale)
    logprobs = logits.log_softmax(-1)[..., WORDS].numpy()
    expected = torch.stack(
        [
            torch.nn.functional.cross_entropy(
                row[:, WORDS], torch.from_numpy(labels), reduction="none"
            )
            for row in logits
        ]
    )
    np.testing.assert_allclose(cross_entropy(logprobs, labels), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_confidence_is_the_definition_over_logits(scale: float) -> None:
    logits, _ = random_logits(scale)
    logprobs = logits.log_softmax(-1)[..., WORDS].numpy()
    expected = -torch.log(logits.exp()[..., WORDS].sum(-1) / logits.exp().sum(-1))
    np.testing.assert_allclose(confidence_loss(logprobs), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("beta", [0.0, 0.1, 1.0, 100.0])
def test_loss_is_the_weighted_mean(beta: float) -> None:
    logits, labels = random_logits(1.0)
    logprobs = logits.log_softmax(-1)[..., WORDS].numpy()
    expected = (cross_entropy(logprobs, labels) + beta * confidence_loss(logprobs)).mean(axis=1)
    np.testing.assert_allclose(Loss(beta)(logprobs, labels), expected)


@settings(deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
def test_extreme_logits_stay_finite(a: float, b: float) -> None:
    logits = torch.tensor([[[a, b, 0.0, -a]]], dtype=torch.float32)
    logprobs = logits.log_softmax(-1)[..., :2].numpy()
    for label in (0, 1):
        value = Loss(1.0)(logprobs, np.array([label]))
        assert np.isfinite(value).all()
        assert (value >= 0).all()


def test_impossible_words_give_nan_without_a_warning() -> None:
    assert np.isnan(Loss(1.0)(np.full((1, 2, 2), -np.inf), np.array([0, 1]))).all()


def test_the_reward_is_the_weighted_gap() -> None:
    shares = np.array([[[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]]])
    found = reward(np.log(shares) - 2, np.array([0, 2]))  # any constant is divided out
    np.testing.assert_allclose(found, [[200 * 0.3, 180 * (0.1 - 0.6)]])
