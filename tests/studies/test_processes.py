"""A study in several processes: who has which GPU, by a stand-in that counts them."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pfes.config import make_config
from pfes.errors import SettingError
from pfes.runs.result import Result
from pfes.searches.loop import Step
from pfes.studies.plan import PlannedRun, StudySpec, plan_runs
from pfes.studies.processes import execute_in_processes, share_gpus
from pfes.studies.study import execute_study
from tests.small_runs import study_defaults
from tests.stand_in_gpus import give_apples, give_gpus


def plan_of(*settings: dict[str, Any]) -> list[PlannedRun]:
    configs = [make_config(**{"model": "m", "task": "t"} | own) for own in settings]
    return [PlannedRun("row", config, "key") for config in configs]


@pytest.mark.parametrize(
    ("gpus", "settings", "jobs", "expected"),
    [
        (0, {}, 3, [None, None, None]),
        (4, {}, 3, ["0", "1", "2"]),
        (4, {"device": "cuda"}, 2, ["0", "1"]),
        (4, {"device": "cpu"}, 6, [None] * 6),
        (4, {"model": "vllm:http://a/v1"}, 6, [None] * 6),
        (4, {"engine": "ray"}, 6, [None] * 6),  # Ray shares its GPUs itself
        (1, {"device_map": "auto"}, 1, [None]),
        (2, {"device": "cuda:1"}, 1, [None]),
        (2, {}, 3, "3 processes need a GPU each, and this machine has 2: use --jobs 2, or"),
        (4, {"device": "cuda:1"}, 2, "2 processes would all use cuda:1: leave --device out"),
    ],
)
def test_each_process_has_a_gpu_to_itself_or_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, gpus: int, settings: dict[str, Any], jobs: int, expected: Any
) -> None:
    give_gpus(monkeypatch, gpus)
    if isinstance(expected, list):
        assert share_gpus(plan_of(settings), jobs) == expected
        return
    with pytest.raises(SettingError, match=expected) as caught:
        share_gpus(plan_of(settings), jobs)
    assert caught.value.setting == "jobs"


def test_one_run_on_a_gpu_is_enough_to_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 1)
    with pytest.raises(SettingError, match="this machine has 1"):
        share_gpus(plan_of({"device": "cpu"}, {}), 2)


def test_apples_gpu_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 0)
    give_apples(monkeypatch)
    with pytest.raises(SettingError, match="this machine has 1"):
        share_gpus(plan_of({}), 2)


def test_a_process_sees_its_own_gpu_only(
    folders: Callable[[str], Path],
    task_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The processes are real, and their GPUs are not: there they find none, and use the CPU."""
    give_gpus(monkeypatch, 2, "4,7")
    spec = StudySpec(
        name="tiny", models=[str(folders("bert"))], tasks=[str(task_file)], seeds=[0, 1],
        defaults=study_defaults(prompt_length=2), rows=[{"method": "saes-id"}],
    )  # fmt: skip
    plan = plan_runs(spec, {})
    with pytest.raises(SettingError, match="3 processes"):
        execute_study(plan, tmp_path / "runs", jobs=3)
    assert not (tmp_path / "runs").exists()
    seen: list[str] = []
    last = {}
    for event in execute_in_processes(plan, tmp_path / "runs", 2):
        children = multiprocessing.active_children()
        if not seen and len(children) == 2:
            seen = [psutil.Process(c.pid).environ()["CUDA_VISIBLE_DEVICES"] for c in children]
        last[event.number] = event.event
    assert sorted(seen) == ["4", "7"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"
    assert all(isinstance(result, Result) for result in last.values())


def test_a_study_that_is_closed_saves_its_runs(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """As after Ctrl-C: each process saves the run that it was in."""
    spec = StudySpec(
        name="tiny", models=[str(folders("bert"))], tasks=[str(task_file)], seeds=[0, 1],
        defaults=study_defaults(
            prompt_length=2, budget=1_000_000, eval_every=1_000_000, checkpoint_seconds=3600
        ),
        rows=[{"method": "saes-id"}],
    )  # fmt: skip
    plan = plan_runs(spec, {})
    events = execute_in_processes(plan, tmp_path, 2)
    searching = set()
    for event in events:
        searching |= {event.number} if isinstance(event.event, Step) else set()
        if len(searching) == 2:
            break
    events.close()
    for run in plan:
        assert (tmp_path / run.folder / "checkpoint.safetensors").exists()
