"""Searches over a real Ray cluster of two nodes here, against the same searches in this process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.config import RunConfig, make_config
from pfes.engines import ray_model
from pfes.engines.ray_model import OUT_OF_MEMORY, RayModel, explain, shares
from pfes.errors import OutOfMemoryError, PfesError
from pfes.folder import RunFolder
from pfes.loop import Step
from pfes.objective import encode_for
from pfes.run import run
from pfes.tasks import load_task

SMALL = {
    "budget": 36, "population": 6, "shots": 4, "prompt_length": 2, "eval_every": 12,
    "test_limit": 12, "sigma0": 0.3, "threads": 1, "batch_tokens": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two nodes on loopback, a core each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    yield f"ray:{nodes.address}"
    ray.shutdown()
    nodes.shutdown()


def config(model: Path, task: Path, **settings: Any) -> RunConfig:
    return make_config(**SMALL | {"model": str(model), "task": str(task)} | settings)


def carry_out(own: RunConfig, out: Path, model: Any = None) -> RunFolder:
    folder = RunFolder(out)
    folder.create()
    for _ in run(own, folder, model=model):
        pass
    return folder


@pytest.mark.parametrize("method", ["saes-id-cr", "one-plus-one-id-cr", "bbt"])
def test_two_workers_find_the_prompt_that_one_process_finds(
    cluster: str, folders: Callable[[str], Path], task_file: Path, tmp_path: Path, method: str
) -> None:
    settings = {"method": method, "beta": 1.0 if method.endswith("-cr") else None}
    here = config(folders("bert"), task_file, **settings)
    there = config(folders("bert"), task_file, engine=cluster, workers=2, **settings)
    serial = carry_out(here, tmp_path / "serial")
    parted = carry_out(there, tmp_path / "ray")
    assert serial.prompt.read_bytes() == parted.prompt.read_bytes()
    for mine, theirs in zip(serial.read_history(), parted.read_history(), strict=True):
        assert mine["losses"] == pytest.approx(theirs["losses"], rel=1e-5)


def test_the_same_blocks_give_the_same_bits(
    cluster: str, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """With as many candidates in a call as a worker has, every loss is the same to the last bit."""
    serial = carry_out(config(folders("bert"), task_file, block=3), tmp_path / "serial")
    there = config(folders("bert"), task_file, engine=cluster, workers=2)
    parted = carry_out(there, tmp_path / "ray")
    for mine, theirs in zip(serial.read_history(), parted.read_history(), strict=True):
        assert mine["losses"] == theirs["losses"]
    assert serial.prompt.read_bytes() == parted.prompt.read_bytes()


def test_a_killed_worker_changes_nothing(
    cluster: str, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    import ray

    there = config(folders("llama"), task_file, engine=cluster, workers=2)
    task = load_task(task_file, 4)
    whole = carry_out(there, tmp_path / "whole")
    model = RayModel(there, task.spec)
    pids = ray.get([worker.pid.remote() for worker in model._workers])
    folder = RunFolder(tmp_path / "killed")
    folder.create()
    steps = 0
    for event in run(there, folder, model=model):
        steps += isinstance(event, Step)
        if isinstance(event, Step) and steps == 2:
            os.kill(pids[1], signal.SIGKILL)
    assert ray.get(model._workers[1].pid.remote()) != pids[1], "another process took its place"
    assert folder.prompt.read_bytes() == whole.prompt.read_bytes()
    assert [line["losses"] for line in folder.read_history()] == [
        line["losses"] for line in whole.read_history()
    ]
    assert folder.read_history()[-1]["evaluations"] == 36  # nothing is counted twice
    model.close()


def test_a_run_may_be_resumed_elsewhere(
    cluster: str, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """Begun in one process, gone on with in two workers: the checkpoint is all that it needs."""
    here = config(folders("bert"), task_file)
    whole = carry_out(here, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parted")
    folder.create()
    for event in run(here, folder):
        if isinstance(event, Step) and event.evaluations >= 12:
            break
    pfes.search(
        str(folders("bert")), task_file, out=folder.path, resume=True, engine=cluster, workers=2
    )
    assert folder.prompt.read_bytes() == whole.prompt.read_bytes()


def test_answers_do_not_depend_on_how_they_are_parted(
    cluster: str, folders: Callable[[str], Path], task_file: Path
) -> None:
    task = load_task(task_file, 4)
    there = config(folders("llama"), task_file, engine=cluster, workers=2)
    model = RayModel(there, task.spec)
    local = pfes.load_model(str(folders("llama")))
    assert (model.family, model.width, model.vocabulary) == (
        "causal",
        local.width,
        local.vocabulary,
    )
    np.testing.assert_array_equal(model.embed([3, 4]), local.embed([3, 4]))
    batch = encode_for(local, task.spec, task.train, 2)
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 5):
        prompts = rng.standard_normal((count, 2, model.width)).astype(np.float32)
        own, places = model.ranks(prompts, batch)
        wanted, ranks = local.ranks(prompts, batch)
        np.testing.assert_allclose(own, wanted, atol=1e-5)
        assert places is not None
        assert (places == ranks).mean() > 0.9  # neighbours in rank may swap by rounding
        np.testing.assert_allclose(model.logprobs(prompts, batch), wanted, atol=1e-5)
    model.close()


def test_a_study_over_the_cluster(
    cluster: str, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    from pfes.studies import StudySpec, plan_runs
    from pfes.studies.carry_out import carry_out as carry_out_study
    from pfes.studies.ray_runs import carry_out_on_ray

    spec = StudySpec(
        name="tiny", models=[str(folders("bert"))], tasks=[str(task_file)], seeds=[0, 1],
        defaults={k: v for k, v in SMALL.items() if k != "threads"},
        rows=[{"method": "saes-id"}, {"method": "saes-id-cr", "beta": "auto"}],
    )  # fmt: skip
    plan = plan_runs(spec, {})
    events = list(carry_out_on_ray(plan, tmp_path / "ray", cluster, threads=1))
    ended = {event.number for event in events if isinstance(event.event, pfes.Result)}
    failed = {event.number: event.event for event in events if isinstance(event.event, PfesError)}
    assert ended == {0, 2}
    assert set(failed) == {1, 3}  # a budget too small for β auto
    assert "--beta auto needs" in str(failed[1])
    for _ in carry_out_study(plan, tmp_path / "serial"):
        pass
    for number in ended:
        pair = [tmp_path / place / plan[number].folder for place in ("ray", "serial")]
        prompts = [RunFolder(path).prompt.read_bytes() for path in pair]
        assert prompts[0] == prompts[1]
    shared = f"file://{tmp_path / 'shared'}"  # as an object store would be
    stored = list(carry_out_on_ray(plan, shared, cluster, threads=1))
    assert {e.number for e in stored if isinstance(e.event, pfes.Result)} == ended
    for number in ended:
        pair = [tmp_path / place / plan[number].folder for place in ("shared", "serial")]
        assert RunFolder(pair[0]).prompt.read_bytes() == RunFolder(pair[1]).prompt.read_bytes()
    times = {file: file.stat().st_mtime_ns for file in tmp_path.glob("ray/*/result.json")}
    again = list(carry_out_on_ray(plan, tmp_path / "ray", cluster, threads=1))
    assert sum(isinstance(event.event, pfes.Result) for event in again) == 2
    assert all(file.stat().st_mtime_ns == before for file, before in times.items())


def test_a_worker_that_cannot_load_says_so(cluster: str, task_file: Path, tmp_path: Path) -> None:
    from tests import tiny

    folder = tiny.save_folder("bert", tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"damaged")
    there = config(folder, task_file, engine=cluster, workers=2)
    with pytest.raises(PfesError, match="cannot be loaded"):
        RayModel(there, load_task(task_file, 4).spec)
    more = config(folder, task_file, engine=cluster, workers=3)
    with pytest.raises(PfesError, match="--workers 3: with 1 threads each, Ray has room for 2"):
        RayModel(more, load_task(task_file, 4).spec)


def test_what_happens_in_a_worker_is_one_line() -> None:
    assert str(explain(PfesError("its own words"))) == "its own words"
    assert str(explain(RuntimeError("CUDA out of memory. Tried …"))) == OUT_OF_MEMORY
    assert str(explain(OutOfMemoryError("a pass"))) == OUT_OF_MEMORY
    assert "--max-batch-tokens" in OUT_OF_MEMORY
    assert str(explain(KeyError("x\ny"))).startswith("a worker failed: KeyError")


@pytest.mark.parametrize(("total", "workers"), [(1, 1), (7, 3), (3, 7), (64, 64), (20, 6)])
def test_shares_are_whole_and_even(total: int, workers: int) -> None:
    parts = shares(total, workers)
    assert [place for low, high in parts for place in range(low, high)] == list(range(total))
    sizes = [high - low for low, high in parts]
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == min(total, workers)


def test_without_ray_one_line_says_what_to_install(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    code = "import sys; sys.modules['ray'] = None; from pfes.cli import main; main()"
    what = ["search", "--model", str(folders("bert")), "--task", str(task_file), "--shots", "4"]
    command = [sys.executable, "-c", code, *what, "--out", str(tmp_path / "x"), "--engine", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "pip install 'pfes[ray]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "expected"),
    [
        ([8, 8, 8, 8], 2, 0, (2, 8)),  # a worker is on one node
        ([8, 8], 3, 0, (3, 4)),
        ([4], None, 0, (4, 1)),
        ([8, 64], 2, 1, (2, 8)),  # with a GPU each
        ([2], 3, 0, "Ray has room for 2"),
    ],
)
def test_workers_get_what_a_node_has(
    nodes: list[int], workers: int | None, gpus: float, expected: object
) -> None:
    resources = [{"CPU": float(count), "GPU": 1.0} for count in nodes]
    ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": one} for one in resources])
    settings = make_config(model="m", task="t", workers=workers, gpus_per_worker=gpus)
    count = workers or ray_model._workers_there(ray, settings)
    threads = ray_model._threads_there(ray, settings, count)
    if isinstance(expected, str):
        with pytest.raises(PfesError, match=expected):
            ray_model.check_room(ray, settings, count, threads)
    else:
        ray_model.check_room(ray, settings, count, threads)
        assert (count, threads) == expected
