"""Losses against torch and the definitions; the objective's shapes and starts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pfes.errors import PfesError
from pfes.objective import Loss, Objective, confidence_loss, cross_entropy
from pfes.tasks import load_task
from tests.stand_in import StandIn

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


@pytest.fixture
def objective(task_file: Path) -> Objective:
    return Objective(StandIn(), load_task(task_file, shots=4), prompt_length=3, beta=0.5)


def test_objective_values_one_per_candidate(objective: Objective) -> None:
    assert objective.dimension == 18
    candidates = np.random.default_rng(0).standard_normal((5, 18), dtype=np.float32)
    values = objective(candidates)
    assert values.shape == (5,)
    np.testing.assert_allclose(values[2], objective(candidates[2:3])[0])


def test_objective_refuses_other_shapes(objective: Objective) -> None:
    with pytest.raises(ValueError, match="candidates, 18"):
        objective(np.zeros(18, np.float32))
    with pytest.raises(ValueError, match="candidates, 18"):
        objective(np.zeros((2, 17), np.float32))


def test_default_length_is_the_papers(task_file: Path) -> None:
    assert Objective(StandIn(), load_task(task_file, shots=4)).prompt_length == 10


def test_initial_prompt_from_the_vocabulary(objective: Objective) -> None:
    first, again, other = (objective.initial_prompt(seed) for seed in (0, 0, 1))
    assert first.shape == (18,)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    every = objective.model.embed(range(300))
    for token in first.reshape(3, 6):
        assert (every == token).all(axis=1).any()


def test_initial_prompt_zeros(objective: Objective) -> None:
    assert not objective.initial_prompt(0, "zeros").any()


def test_initial_prompt_from_text_is_repeated_or_cut(objective: Objective) -> None:
    tokenizer = objective.model.tokenizer
    one = objective.initial_prompt(0, "text: great").reshape(3, 6)
    token = tokenizer(" great")["input_ids"]
    assert len(token) == 1
    np.testing.assert_array_equal(one, np.repeat(objective.model.embed(token), 3, axis=0))
    long = objective.initial_prompt(0, "text: a great terrible great film").reshape(3, 6)
    ids = tokenizer(" a great terrible great film")["input_ids"][:3]
    np.testing.assert_array_equal(long, objective.model.embed(ids))


@pytest.mark.parametrize("init", ["text:", "random", ""])
def test_senseless_starts_are_refused(objective: Objective, init: str) -> None:
    with pytest.raises(PfesError, match="init"):
        objective.initial_prompt(0, init)


def test_a_prompt_that_fills_the_model_is_refused(task_file: Path) -> None:
    with pytest.raises(PfesError, match="leaves no room"):
        Objective(StandIn(), load_task(task_file, shots=4), prompt_length=200)
