"""Runs whose generations are evaluated on batches of the training examples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfes.config import make_config
from pfes.contract import Batch, Floats
from pfes.errors import PfesError
from pfes.runs.result import Result
from pfes.runs.run import run
from pfes.runs.saved import SavedRun
from pfes.runs.start import start_run
from pfes.searches.encoded import EncodedTask
from pfes.searches.loop import Step
from pfes.searches.losses import Loss
from pfes.searches.objective import prompt_values
from pfes.system.stages import result_of
from tests.small_runs import begin, finish, small_settings
from tests.stand_in import StandIn

BATCHES: dict[str, Any] = {"shots": 8, "batch_examples": 6}


class Watched(StandIn):
    """Keeps what it was asked: how many candidates, and which examples."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[tuple[int, ...], ...]]] = []

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        self.asked.append((len(prompts), batch.token_ids))
        return super().logprobs(prompts, batch)

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> None:
        self.measured = len(batch)


def searched(model: Watched, size: int) -> list[tuple[int, tuple[tuple[int, ...], ...]]]:
    """Return what was asked about batches of a size that nothing else has."""
    return [(count, rows) for count, rows in model.asked if len(rows) == size]


@pytest.mark.parametrize("block", [None, 4])
def test_a_generation_shares_its_batch(task_file: Path, tmp_path: Path, block: int | None) -> None:
    model = Watched()
    result = finish(task_file, tmp_path / "run", model=model, block=block, budget=27, **BATCHES)
    asked = searched(model, 6)
    per_call = [6] * 4 + [3] if block is None else [4, 2] * 4 + [3]  # the budget cuts the last one
    assert [count for count, _ in asked] == per_call
    batches = [rows for _, rows in asked] if block is None else [rows for _, rows in asked[::2]]
    if block is not None:
        assert [rows for _, rows in asked[1::2]] == batches[:4]
    assert len(set(batches)) == 5
    assert model.measured == 6
    assert (result.evaluations, result.sentence_evaluations) == (27, 27 * 6)


def test_the_training_loss_is_that_of_all_examples(task_file: Path, tmp_path: Path) -> None:
    result = finish(task_file, tmp_path / "run", **BATCHES)
    model = StandIn()
    train = EncodedTask(model, SavedRun(tmp_path / "run").task, len(result.prompt)).train
    assert len(train) == 16
    (loss,), _ = prompt_values(model, train, result.prompt[None], Loss(beta=1.0))
    assert result.train_loss == pytest.approx(loss)


@pytest.mark.parametrize("method", ["saes-id-cr", "wes-id", "cmaes", "zosgd", "bdpl"])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_resumed_run_draws_the_same_batches(
    task_file: Path, tmp_path: Path, method: str, stop: int
) -> None:
    changes = BATCHES | {"method": method, "budget": 30}
    finish(task_file, tmp_path / "whole", **changes)
    stop_and_resume(task_file, tmp_path / "parted", stop, **changes)
    compare(tmp_path / "whole", tmp_path / "parted")


@pytest.mark.parametrize("stop", [1, 6, 20, 25])
def test_every_beta_sees_the_same_batches(task_file: Path, tmp_path: Path, stop: int) -> None:
    changes = BATCHES | {"beta": "auto", "budget": 90, "population": 3}
    model = Watched()
    result = finish(task_file, tmp_path / "whole", model=model, **changes)
    assert result.sentence_evaluations == 90 * 6
    batches = [rows for _, rows in searched(model, 6)]
    assert len(set(batches[:10])) == 2  # five β with two generations each in the first round
    stop_and_resume(task_file, tmp_path / "parted", stop, **changes)
    compare(tmp_path / "whole", tmp_path / "parted")


def stop_and_resume(task_file: Path, folder: Path, stop: int, **changes: Any) -> None:
    events = begin(task_file, folder, **changes)
    steps = (event for event in events if isinstance(event, Step))
    for _ in range(stop):
        next(steps)
    events.close()
    list(begin(task_file, folder, resume=True, **changes))


def compare(whole: Path, parted: Path) -> None:
    prompts = [(path / "prompt.safetensors").read_bytes() for path in (whole, parted)]
    assert prompts[0] == prompts[1]
    losses = [[line["losses"] for line in SavedRun(path).history] for path in (whole, parted)]
    assert losses[0] == losses[1]
    spent = [SavedRun(path).result.sentence_evaluations for path in (whole, parted)]
    assert spent[0] == spent[1]


def test_a_batch_of_all_examples_changes_nothing(task_file: Path, tmp_path: Path) -> None:
    all_of_them = finish(task_file, tmp_path / "all")
    assert all_of_them.config["batch_examples"] is None
    assert all_of_them.sentence_evaluations == all_of_them.evaluations * 8
    same = finish(task_file, tmp_path / "same", batch_examples=100)
    np.testing.assert_array_equal(all_of_them.prompt, same.prompt)
    assert all_of_them.sentence_evaluations == same.sentence_evaluations


def with_many_rows(task_file: Path) -> Path:
    rows = [f'"film {i}, of kind {i % 7}",{("good", "bad")[i % 2]}' for i in range(600)]
    data = task_file.with_name("films.csv")
    data.write_text("text,verdict\n" + "\n".join(rows) + "\n")
    return task_file


@pytest.mark.parametrize(("method", "size"), [("saes-id", 64), ("one-plus-one-id", None)])
def test_of_many_examples_a_batch_is_drawn(
    task_file: Path, tmp_path: Path, method: str, size: int | None
) -> None:
    task = with_many_rows(task_file)
    result = finish(task, tmp_path / "run", method=method, shots="all")
    assert result.config["batch_examples"] == size
    train = len(SavedRun(tmp_path / "run").task.train)
    assert train > 128
    assert result.sentence_evaluations == result.evaluations * (size or train)


def test_a_run_that_was_begun_with_all_examples_keeps_them(task_file: Path, tmp_path: Path) -> None:
    """As those of versions that had no batches."""
    task, folder = with_many_rows(task_file), tmp_path / "run"
    events = begin(task, folder, shots="all", batch_examples=1000)
    next(event for event in events if isinstance(event, Step))
    events.close()
    config = json.loads((folder / "config.json").read_text())
    del config["batch_examples"]
    (folder / "config.json").write_text(json.dumps(config))
    result = result_of(begin(task, folder, shots="all", resume=True))
    assert result.config["batch_examples"] is None
    train = len(SavedRun(folder).task.train)
    assert result.sentence_evaluations == result.evaluations * train


@pytest.mark.parametrize("method", ["one-plus-one", "one-plus-one-id-cr", "rlprompt"])
def test_a_method_that_compares_generations_takes_all(
    task_file: Path, tmp_path: Path, method: str
) -> None:
    settings = small_settings(method=method) | {"batch_examples": 4}
    with pytest.raises(PfesError, match=f"^batch_examples: {method} compares values") as caught:
        start_run({"model": "stand-in", "task": str(task_file)} | settings, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_study_may_have_batches_for_its_other_methods(task_file: Path) -> None:
    settings = small_settings(method="one-plus-one") | {"batch_examples": 4}
    config = make_config(model="stand-in", task=str(task_file), **settings)
    result = result_of(run(config, model=StandIn()))
    assert result.config["batch_examples"] is None
    assert result.sentence_evaluations == result.evaluations * 8


@pytest.mark.parametrize("size", [None, 6])
def test_what_is_settled_before_a_search_is_counted(
    task_file: Path, tmp_path: Path, size: int | None
) -> None:
    model, folder = Watched(), tmp_path / "run"
    changes: dict[str, Any] = {"shots": 8, "init": "auto", "sigma0": "auto", "prompt_length": None}
    events = begin(task_file, folder, model=model, budget=200, batch_examples=size, **changes)
    for event in events:
        if isinstance(event, Step):
            break
        asked = list(model.asked)  # without the look at validation in the first step
    result: Result = result_of(events)
    assert result.start is not None
    assert result.start.trials
    shown = {trial.name: 32 - trial.examples for trial in result.start.trials}
    assert {0, 2} <= set(shown.values())  # nothing in front, or an example of each label
    each = size or 16 - shown[result.start.name]
    before = sum(count * len(rows) for count, rows in asked)
    searched_for = result.evaluations - result.start.evaluations
    assert result.sentence_evaluations == before + searched_for * each


def test_without_a_search_nothing_is_evaluated(task_file: Path, tmp_path: Path) -> None:
    assert finish(task_file, tmp_path / "run", method="manual").sentence_evaluations == 0
