"""Whole runs: results, folders, and resuming after a kill at any moment."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.config import RunConfig, make_config
from pfes.contract import Batch, Floats
from pfes.errors import PfesError
from pfes.methods import METHODS
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event, run
from pfes.runs.saved import SavedRun
from pfes.searches.loop import Step
from pfes.system.stages import result_of
from pfes.tasks import Task, load_task
from tests import small_runs
from tests.small_runs import small_settings
from tests.stand_in import StandIn

KEYS = {
    "method", "model", "task", "seed", "metric", "zero_shot", "initial", "validation", "test",
    "train_loss", "evaluations", "seconds_per_evaluation", "probability", "rank",
}  # fmt: skip
FIELDS = {
    *(name for name, field in Result.model_fields.items() if not field.exclude),
    *Result.model_computed_fields,
}


SETTINGS = {"budget": 60, "eval_every": 20, "population": 20, "seed": 1, "test_limit": None}


def start(task_file: Path, folder: Path, **changes: Any) -> Generator[Event, None, Result]:
    return small_runs.begin(task_file, folder, **SETTINGS | changes)


def settings(task_file: Path, **changes: Any) -> dict[str, Any]:
    names = {"model": "stand-in", "task": str(task_file)}
    return names | small_settings(**SETTINGS | changes)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].optimizer])
def test_every_search_runs_and_improves(
    task_file: Path, tmp_path: Path, folders: Callable[[str], Path], method: str
) -> None:
    changes = policy(folders, method) | {"method": method, "budget": 300}
    result = result_of(start(task_file, tmp_path / "run", **changes))
    assert result.train_loss < result.initial_train_loss
    stored = json.loads((tmp_path / "run/result.json").read_text())
    assert set(stored) == FIELDS >= KEYS
    assert stored["evaluations"] == 300
    assert stored["added"] == stored["test"] - stored["initial"]
    low, high = stored["intervals"]["added"]
    assert low <= stored["added"] <= high
    assert stored["rank"] is None  # the stand-in does not show ranks, and nothing is invented
    assert stored["beta"] == stored["config"]["beta"] == (1.0 if method.endswith("-cr") else None)
    assert stored["config"]["sigma0"] == 0.3
    assert (stored["text"] is not None) == (METHODS[method].space == "tokens")


@pytest.mark.parametrize("method", ["manual", "icl"])
def test_methods_without_a_search_leave_the_same_result(
    task_file: Path, tmp_path: Path, method: str
) -> None:
    result = result_of(start(task_file, tmp_path / "run", method=method))
    stored = json.loads((tmp_path / "run/result.json").read_text())
    assert set(stored) == FIELDS
    assert stored["evaluations"] == 0
    assert stored["seconds_per_evaluation"] is None
    assert stored["initial"] == stored["zero_shot"]
    assert "added" not in stored["intervals"]
    assert (stored["test"] == stored["zero_shot"]) or method == "icl"
    assert result.prompt.shape == (0, StandIn.width)
    assert not (tmp_path / "run/history.jsonl").exists()


def test_a_run_folder_holds_the_whole_run(task_file: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    result = result_of(start(task_file, tmp_path / "run"), events.append)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    tensors = {"checkpoint.safetensors", "checkpoint-before.safetensors", "prompt.safetensors"}
    others = {"answers.jsonl", "config.json", "history.jsonl", "result.json", "task.json", ".lock"}
    others |= {"start.json"}
    assert names == tensors | others | {"convergence.png"}
    saved = SavedRun(tmp_path / "run")
    lines = saved.history
    steps = [event for event in events if isinstance(event, Step)]
    assert [line["evaluations"] for line in lines] == [step.evaluations for step in steps]
    assert [line["losses"] for line in lines] == [step.losses for step in steps]
    np.testing.assert_array_equal(saved.prompt, result.prompt)
    assert saved.result.test == result.test
    assert saved.task == load_task(task_file, shots=4, seed=1)


def test_same_config_and_seed_same_bytes(task_file: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        list(start(task_file, tmp_path / name))
    list(start(task_file, tmp_path / "c", seed=2))
    first, again, other = (
        (tmp_path / name / "prompt.safetensors").read_bytes() for name in ("a", "b", "c")
    )
    assert first == again != other


@pytest.mark.parametrize(
    "method",
    [
        "saes-id-cr",
        "wes-id",
        "one-plus-one-id-cr",
        "cmaes",
        "zosgd",
        "bdpl",
        "rlprompt",
        "prompt-tuning",
    ],
)
@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_stopping_between_steps(
    task_file: Path, tmp_path: Path, folders: Callable[[str], Path], method: str, stop: int
) -> None:
    changes = policy(folders, method) | {"method": method, "budget": 50, "population": 10}
    list(start(task_file, tmp_path / "whole", **changes))
    stop_and_resume(task_file, tmp_path / "parted", stop, **changes)
    compare(tmp_path / "whole", tmp_path / "parted")


@pytest.mark.parametrize("stop", [1, 6, 13, 20, 21, 25, 29])
def test_stopping_while_betas_are_tried(task_file: Path, tmp_path: Path, stop: int) -> None:
    changes = {"beta": "auto", "budget": 90, "population": 3}
    list(start(task_file, tmp_path / "whole", **changes))
    stop_and_resume(task_file, tmp_path / "parted", stop, **changes)
    compare(tmp_path / "whole", tmp_path / "parted")


def policy(folders: Callable[[str], Path], method: str) -> dict[str, str]:
    return {"policy_model": str(folders("llama"))} if method == "rlprompt" else {}


def stop_and_resume(task_file: Path, folder: Path, stop: int, **changes: object) -> None:
    events = start(task_file, folder, **changes)
    steps = (event for event in events if isinstance(event, Step))
    for _ in range(stop):
        next(steps)
    events.close()  # type: ignore[attr-defined]
    list(start(task_file, folder, resume=True, **changes))


def compare(whole: Path, parted: Path) -> None:
    """Two runs left the same bytes and the same history, but for the time they took."""
    assert (whole / "prompt.safetensors").read_bytes() == (
        parted / "prompt.safetensors"
    ).read_bytes()
    lines = [SavedRun(path).history for path in (whole, parted)]
    results = [json.loads((path / "result.json").read_text()) for path in (whole, parted)]
    for line in [*lines[0], *lines[1]]:
        del line["seconds"]
    for result in results:
        del result["seconds_per_evaluation"], result["profile"]
    assert lines[0] == lines[1]
    assert results[0] == results[1]


def child(task: Task, config: RunConfig, folder: Path, linger: float = 0.0) -> None:
    for _ in run(config, RunFolder(folder), resume=True, model=StandIn(), task=task):
        time.sleep(0.002)  # spreads the kills over the whole run
    time.sleep(linger)


@pytest.mark.parametrize("method", ["saes-id-cr", "one-plus-one-id", "bbt", "zosgd-cr", "bdpl"])
@pytest.mark.parametrize("attempt", range(4))
def test_kill_at_random_moments(task_file: Path, tmp_path: Path, method: str, attempt: int) -> None:
    every = (0, 0.004, 0.02, 60)[attempt]  # from after every step to never
    changes = {"method": method, "budget": 80, "checkpoint_seconds": every}
    config = make_config(**settings(task_file, **changes))
    task = load_task(task_file, shots=4, seed=1)
    for folder in ("whole", "parted"):
        (tmp_path / folder).mkdir()
    began = time.perf_counter()
    child(task, config, tmp_path / "whole")
    took = time.perf_counter() - began
    moments = random.Random(attempt)
    fork = multiprocessing.get_context("fork")
    for _ in range(6):
        # one that is done early waits for its end, so that every one is killed on any machine
        process = fork.Process(target=child, args=(task, config, tmp_path / "parted", 60.0))
        process.start()
        process.join(moments.uniform(0, took / 2))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    child(task, config, tmp_path / "parted")
    compare(tmp_path / "whole", tmp_path / "parted")


class Interrupted(StandIn):
    """Is stopped in the middle of its n-th answer, as by Ctrl-C."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().logprobs(prompts, batch)


@pytest.mark.parametrize(
    "changes",
    [{"method": name} for name in ("saes-id-cr", "one-plus-one-id", "bbt", "zosgd-cr", "bdpl")]
    + [{"beta": "auto", "population": 3, "budget": 90}],
)
@pytest.mark.parametrize("answers", [4, 11])
def test_ctrl_c_in_the_middle_of_a_step_loses_that_step_alone(
    task_file: Path, tmp_path: Path, changes: dict[str, Any], answers: int
) -> None:
    changes = {"population": 6, "checkpoint_seconds": 3600} | changes
    list(start(task_file, tmp_path / "whole", **changes))
    seen: list[Event] = []
    events = start(task_file, tmp_path / "run", model=Interrupted(answers), **changes)
    with pytest.raises(KeyboardInterrupt):
        seen.extend(events)
    (*_, last) = (event for event in seen if isinstance(event, Step))
    state = SavedRun(tmp_path / "run").checkpoint
    assert state is not None
    searches = state["search"].get("searches") or {"0": state["search"]}
    assert sum(search["evaluations"] for search in searches.values()) == last.evaluations
    list(start(task_file, tmp_path / "run", resume=True, **changes))
    compare(tmp_path / "whole", tmp_path / "run")


def test_a_history_may_run_ahead_of_its_checkpoint(task_file: Path, tmp_path: Path) -> None:
    """What a kill leaves between two checkpoints; a resume takes the same steps again."""
    changes = {"method": "one-plus-one-id", "checkpoint_seconds": 3600, "eval_every": 7}
    list(start(task_file, tmp_path / "whole", **changes))
    events = start(task_file, tmp_path / "run", **changes)
    copied = tmp_path / "copied"
    for event in events:
        if isinstance(event, Step) and event.evaluations == 33:
            shutil.copytree(tmp_path / "run", copied)
    saved = SavedRun(copied)
    assert len(saved.history) == 33
    selected = [line["evaluations"] for line in saved.history if line["selected"]]
    state = saved.checkpoint
    assert (0 if state is None else state["search"]["evaluations"]) == max(selected, default=0)
    list(start(task_file, copied, resume=True, **changes))
    compare(tmp_path / "whole", copied)


def test_how_often_a_run_is_saved_may_change(task_file: Path, tmp_path: Path) -> None:
    list(start(task_file, tmp_path / "whole"))
    events = start(task_file, tmp_path / "run", checkpoint_seconds=0)
    while not isinstance(next(events), Step):
        pass
    events.close()
    list(start(task_file, tmp_path / "run", resume=True, checkpoint_seconds=2))
    results = [SavedRun(tmp_path / name).result for name in ("whole", "run")]
    assert [result.config["checkpoint_seconds"] for result in results] == [5, 2]
    assert results[0].test == results[1].test


def test_a_half_written_history_line_is_dropped(task_file: Path, tmp_path: Path) -> None:
    list(start(task_file, tmp_path / "whole"))
    events = start(task_file, tmp_path / "parted")
    for event in events:
        if isinstance(event, Step):
            break
    events.close()  # type: ignore[attr-defined]
    with (tmp_path / "parted/history.jsonl").open("a") as file:
        file.write('{"evaluations": 40, "los')
    list(start(task_file, tmp_path / "parted", resume=True))
    compare(tmp_path / "whole", tmp_path / "parted")


def test_search_from_python(task_file: Path, tmp_path: Path) -> None:
    task = load_task(task_file, shots=4, seed=3)
    settings: dict[str, Any] = {"budget": 40, "prompt_length": 2, "sigma0": 0.5, "free": "none"}
    settings["reading"] = "plain"
    result = pfes.search(StandIn(), task, "saes-id", **settings)
    assert result.prompt.shape == (2, 6)
    assert (result.method, result.seed, result.evaluations) == ("saes-id", 3, 40)
    stored = pfes.search(StandIn(), task, "saes-id", out=tmp_path / "run", **settings)
    np.testing.assert_array_equal(stored.prompt, result.prompt)
    with pytest.raises(PfesError, match="not empty"):
        pfes.search(StandIn(), task, "saes-id", budget=40, out=tmp_path / "run")
    again = pfes.search(StandIn(), task, "saes-id", out=tmp_path / "run", resume=True)
    assert again.test == stored.test
    np.testing.assert_array_equal(again.prompt, stored.prompt)


def test_a_draft_left_by_a_kill_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json.tmp").write_text("{")
    RunFolder(tmp_path).create()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PfesError, match="^out:"):
        RunFolder(tmp_path / "file" / "run").create()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": -5}, "budget:"),
        ({"budget": "many"}, "budget:"),
        ({"shots": 0}, "shots:"),
        ({"beta": -1.0}, "beta:"),
        ({"sigma0": 0.0}, "sigma0:"),
        ({"sigma0": float("inf")}, "sigma0:"),
        ({"intrinsic_dimension": float("inf")}, "intrinsic_dimension:"),
        ({"patience": float("inf")}, "patience:"),
        ({"prompt_length": 0}, "prompt_length:"),
        ({"eval_every": 0}, "eval_every:"),
        ({"seed": -1}, "seed:"),
        ({"dtype": "int8"}, "dtype:"),
        ({"colour": "red"}, "colour:"),
    ],
)
def test_wrong_settings_are_named(task_file: Path, changes: dict, message: str) -> None:
    with pytest.raises(PfesError) as caught:
        make_config(**settings(task_file, **changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_more_parents_than_children_is_refused(task_file: Path, tmp_path: Path) -> None:
    with pytest.raises(PfesError, match="^parents:"):
        list(start(task_file, tmp_path / "run", parents=30))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intrinsic_dimension": 0.4}, "intrinsic_dimension: bbt needs at least 1"),
        ({"population": 2}, "population: bbt needs at least 3, not 2"),
    ],
)
def test_a_subspace_that_cannot_be_searched_is_refused(
    task_file: Path, tmp_path: Path, changes: dict, message: str
) -> None:
    with pytest.raises(PfesError, match=message):
        list(start(task_file, tmp_path / "run", method="bbt", **changes))


def test_a_step_is_on_disk_before_the_checkpoint_that_needs_it(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync = os.fsync

    def watch(file: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        sync(file)

    monkeypatch.setattr(os, "fsync", watch)
    list(start(task_file, tmp_path / "run", checkpoint_seconds=0))
    places = [number for number, name in enumerate(synced) if name.startswith("checkpoint")]
    assert len(places) == len(SavedRun(tmp_path / "run").history)
    assert {synced[place - 1] for place in places} == {"history.jsonl"}


def test_text_start_sets_the_length(task_file: Path, tmp_path: Path) -> None:
    changes = {"prompt_length": None, "init": "text: great terrible great"}
    result = result_of(start(task_file, tmp_path / "run", **changes))
    assert result.prompt.shape == (3, 6)
