"""Early rejection changes no decision: whole trajectories are the same with and without it."""

from pathlib import Path

import numpy as np
import pytest

from pfes.config import make_config
from pfes.early import EarlyRejection
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.loop import Search, Validation
from pfes.models.local import LocalModel
from pfes.objective import Evaluation, Loss, Objective
from pfes.optimizers import SAES, OnePlusOneES, Optimizer
from pfes.run import run
from pfes.tasks import load_task
from tests import tiny
from tests.stand_in import StandIn


def settings(task_file: Path, **changes: object) -> dict:
    base = {
        "model": "stand-in",
        "task": str(task_file),
        "shots": 8,
        "budget": 120,
        "eval_every": 40,
    }
    return base | {"prompt_length": 2, "sigma0": 1.0, "population": 8} | changes


@pytest.mark.parametrize("method", ["one-plus-one-id", "one-plus-one-id-cr", "saes", "saes-id-cr"])
def test_runs_are_the_same_with_and_without(task_file: Path, tmp_path: Path, method: str) -> None:
    rejected = 0
    for seed in range(20):
        changes = settings(task_file, method=method, seed=seed)
        folders = [RunFolder(tmp_path / f"{seed}-{early}") for early in (False, True)]
        for early, folder in enumerate(folders):
            folder.create()
            config = make_config(**changes, early_rejection=bool(early))
            list(run(config, folder, model=StandIn()))
        plain, early_lines = (folder.read_history() for folder in folders)
        assert folders[0].prompt.read_bytes() == folders[1].prompt.read_bytes()
        for whole, cut in zip(plain, early_lines, strict=True):
            for name in ("evaluations", "best_loss", "sigma", "validation", "selected"):
                assert whole[name] == cut[name]
            assert whole["partial"] == []
            for i, (value, bound) in enumerate(zip(whole["losses"], cut["losses"], strict=True)):
                assert bound < value if i in cut["partial"] else bound == value
            rejected += len(cut["partial"])
    assert rejected > 100


class Counted:
    """Evaluates like early rejection, or in the same passes without ever stopping."""

    def __init__(self, objective: Objective, search: Optimizer, stops: bool) -> None:
        self.objective, self.search, self.stops = objective, search, stops
        self.early = EarlyRejection(objective, Loss(), objective.prompts(search.mean[None])[0])
        self.rejected = 0

    def __call__(self, candidates: np.ndarray) -> Evaluation:
        bar = self.search.bar if self.stops else lambda _: np.inf
        found = self.early(self.objective.prompts(candidates), bar)
        self.rejected += len(found.partial)
        return found


@pytest.mark.parametrize("kind", ["one-plus-one", "saes"])
@pytest.mark.parametrize("placement", ["prefix", "suffix"])
def test_on_a_real_model_every_generation_is_the_same(
    task_file: Path, kind: str, placement: str
) -> None:
    """The same passes without stopping give the same bits; in other shapes, rounding differs."""
    module = tiny.make_module("llama")
    model = LocalModel("tiny", "causal", module, tiny.make_tokenizer("causal"))
    rejected = 0
    for seed in range(10):
        task = load_task(task_file, shots=4, seed=seed)
        objective = Objective(model, task, 3, placement=placement)  # type: ignore[arg-type]
        x0 = objective.initial_prompt(seed)
        found = []
        for stops in (False, True):
            search: Optimizer = OnePlusOneES(x0, 0.5, 500, seed)
            if kind == "saes":
                search = SAES(x0, 0.5, 8, 2, 500, seed)
            evaluate = Counted(objective, search, stops)
            loop = Search(search, evaluate, lambda _: Validation(0.0, 0.0, 0.0), 64, 64)
            found.append([search.mean.copy() for _ in loop.steps()])
            rejected += evaluate.rejected
        np.testing.assert_array_equal(found[0], found[1])
        parted = evaluate.early(objective.prompts(x0[None]), lambda _: np.inf).values
        np.testing.assert_allclose(parted, objective(x0[None]), atol=1e-5)
    assert rejected > 10


def test_methods_that_need_whole_values_refuse_it(task_file: Path, tmp_path: Path) -> None:
    config = make_config(**settings(task_file, method="bbt", early_rejection=True))
    with pytest.raises(PfesError, match="--early-rejection: bbt"):
        list(run(config, RunFolder(tmp_path), model=StandIn()))
