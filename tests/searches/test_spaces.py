"""The random subspace: its distribution, its energy, and BBT as a composition."""

from pathlib import Path

import cma
import numpy as np
import pytest

from pfes.config import make_config
from pfes.errors import PfesError
from pfes.runs.folder import RunFolder
from pfes.runs.run import run
from pfes.runs.saved import SavedRun
from pfes.searches.objective import Objective
from pfes.searches.spaces import FullSpace, RandomSubspace, TokenSpace
from pfes.seeds import stream
from pfes.system.stages import result_of
from pfes.tasks import load_task
from tests.stand_in import StandIn


def test_the_full_space_is_the_prompts_own() -> None:
    space = FullSpace(np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(space.start, np.ones(4))
    np.testing.assert_array_equal(space.prompts(np.zeros((3, 4), np.float32)), np.zeros((3, 2, 2)))


def test_the_subspace_starts_at_the_initial_prompt() -> None:
    origin = np.arange(50, dtype=np.float32).reshape(5, 10)
    space = RandomSubspace(origin, 7, seed=0)
    np.testing.assert_array_equal(space.prompts(space.start[None])[0], origin)


def test_the_basis_is_uniform_and_by_seed() -> None:
    bases = [RandomSubspace(np.zeros((3, 1000), np.float32), 100, seed).basis for seed in (0, 0, 1)]
    np.testing.assert_array_equal(bases[0], bases[1])
    assert not np.array_equal(bases[0], bases[2])
    assert np.abs(bases[0]).max() <= 0.1 + 1e-6
    assert bases[0].var() == pytest.approx(1 / 300, rel=0.01)
    assert bases[0].dtype == np.float32


def test_the_step_sizes_of_the_paper_have_the_same_energy() -> None:
    d, intrinsic, n = 4000, 200, 200
    rng = np.random.default_rng(0)
    space = RandomSubspace(np.zeros((4, d // 4), np.float32), intrinsic, seed=0)
    z = rng.standard_normal((n, intrinsic), dtype=np.float32)
    bbt = (space.prompts(z) ** 2).sum(axis=(1, 2))
    es = ((rng.standard_normal((n, d)) / np.sqrt(3)) ** 2).sum(axis=1)
    error = np.sqrt((bbt.var() + es.var()) / n)
    assert bbt.mean() == pytest.approx(es.mean(), abs=4 * error)
    assert bbt.mean() == pytest.approx(d / 3, rel=0.05)


def bbt_settings(task_file: Path) -> dict:
    return {
        "model": "stand-in", "task": str(task_file), "method": "bbt", "shots": 4, "budget": 80,
        "prompt_length": 3, "intrinsic_dimension": 5, "population": 8, "eval_every": 8, "seed": 2,
        "free": "none", "reading": "plain", "init": "vocab", "sigma0": "paper",
    }  # fmt: skip


def test_bbt_is_cma_behind_a_random_matrix(task_file: Path, tmp_path: Path) -> None:
    result_of(run(make_config(**bbt_settings(task_file)), RunFolder(tmp_path), model=StandIn()))
    ours = [value for line in SavedRun(tmp_path).history for value in line["losses"]]

    objective = Objective(StandIn(), load_task(task_file, shots=4, seed=2), 3)
    x0 = objective.initial_prompt(2)
    uniform = stream(2, "subspace").random((5, 18), dtype=np.float32)
    basis = (uniform - np.float32(0.5)) * np.float32(2 / np.sqrt(5))
    rng = np.random.default_rng(int(stream(2, "optimizer").integers(2**32)))
    options = {"popsize": 8, "randn": lambda *s: rng.standard_normal(s), "seed": np.nan}
    es = cma.CMAEvolutionStrategy(np.zeros(5), 1.0, options | {"verbose": -9, "verb_log": 0})
    theirs = []
    for _ in range(10):
        points = es.ask()
        values = objective(x0 + np.array(points, dtype=np.float32) @ basis)
        es.tell(points, values.tolist())
        theirs += values.tolist()
    assert ours == theirs


def test_the_basis_is_not_stored(task_file: Path, tmp_path: Path) -> None:
    config = make_config(**bbt_settings(task_file))
    result = result_of(run(config, RunFolder(tmp_path), model=StandIn()))
    assert result.prompt.shape == (3, 6)
    state = SavedRun(tmp_path).checkpoint
    assert state is not None
    assert state["search"]["selection"]["solution"].shape == (5,)


def test_full_space_cma_that_does_not_fit_is_refused(task_file: Path, tmp_path: Path) -> None:
    class Wide(StandIn):
        width = 1024

    settings = bbt_settings(task_file) | {"method": "cmaes", "prompt_length": 50}
    with pytest.raises(PfesError, match=r"51,200 dimensions needs about \d+\.\d GB") as caught:
        result_of(run(make_config(**settings), RunFolder(tmp_path), model=Wide()))
    assert "\n" not in str(caught.value)


def test_tokens_of_another_vocabulary_travel_as_text() -> None:
    model, other = StandIn(), {1: "a great film", 2: "dull", 3: ""}

    def decode(tokens: list[int]) -> str:
        return " ".join(other[token] for token in tokens)

    space = TokenSpace(model, decode, foreign=True, longest=4)
    vectors = np.array([[1, 2], [2, 2], [3, 3]])
    prompts = space.prompts(vectors)
    for vector, prompt in zip(vectors, prompts, strict=True):
        ids = model.tokenizer(decode(vector.tolist()), add_special_tokens=False)["input_ids"]
        np.testing.assert_array_equal(prompt, model.embed(ids[:4]))
    assert space.text(vectors[0]) == "a great film dull"
