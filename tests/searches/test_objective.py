"""The objective: a value for each candidate, and the prompts that a search may start from."""

from pathlib import Path

import numpy as np
import pytest

from pfes.errors import PfesError
from pfes.searches.losses import Loss
from pfes.searches.objective import Objective, prompt_values
from pfes.tasks import load_task
from tests.stand_in import StandIn


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
def test_unknown_initial_prompts_are_refused(objective: Objective, init: str) -> None:
    with pytest.raises(PfesError, match="init"):
        objective.initial_prompt(0, init)


def test_a_prompt_that_fills_the_model_is_refused(task_file: Path) -> None:
    with pytest.raises(PfesError, match="leaves no room"):
        Objective(StandIn(), load_task(task_file, shots=4), prompt_length=200)


def test_prompts_of_several_lengths_have_the_values_of_each_alone(task_file: Path) -> None:
    objective = Objective(StandIn(), load_task(task_file, shots=4), 4)
    rng = np.random.default_rng(0)
    prompts = [rng.standard_normal((length, 6)).astype(np.float32) for length in (3, 1, 4, 1, 0)]
    model, batch, loss = objective.model, objective.batch, Loss()
    alone = [prompt_values(model, batch, prompt[None], loss)[0][0] for prompt in prompts]
    np.testing.assert_array_equal(prompt_values(model, batch, prompts, loss)[0], alone)
