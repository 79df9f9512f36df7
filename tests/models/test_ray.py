"""Searches over a real Ray cluster of two nodes here, against the same searches in this process."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.config import RunConfig, make_config
from pfes.errors import OutOfMemoryError, PfesError, SettingError
from pfes.models.ray.cluster import check_room, gpus_of_worker, most_threads, most_workers
from pfes.models.ray.ray_model import OUT_OF_MEMORY, RayModel, explain, shares
from pfes.models.ray.ray_worker import RayWorker
from pfes.runs.folder import RunFolder
from pfes.runs.run import run
from pfes.runs.saved import SavedRun
from pfes.searches.encoded import encode_for
from pfes.searches.loop import Step
from pfes.studies.execute import RunEvent, execute_runs
from pfes.studies.plan import StudySpec, plan_runs
from pfes.studies.ray_runs import execute_on_ray
from pfes.system.stages import result_of
from pfes.tasks import load_task
from tests import tiny
from tests.command import call
from tests.small_runs import study_defaults

pytestmark = pytest.mark.xdist_group("ray")  # one process has the cluster

SMALL = study_defaults(budget=36, prompt_length=2, threads=1, batch_tokens=256)


def make(model: Path, task: Path, **settings: Any) -> RunConfig:
    return make_config(**SMALL | {"model": str(model), "task": str(task)} | settings)


def noting(folder: Path) -> type[RayWorker]:
    """A worker that leaves the number of its process in a folder, each time it starts."""

    class Noting(RayWorker):
        def __init__(self, config: dict[str, Any], spec: dict[str, Any], threads: int) -> None:
            super().__init__(config, spec, threads)
            (folder / str(self.pid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    return Noting


class Cluster:
    """Two nodes on loopback, a core and a GPU each: room for two workers, a pair for all tests."""

    def __init__(self, notes: Path) -> None:
        from ray.cluster_utils import Cluster as Nodes

        # Ray takes the number of GPUs on trust; torch finds none and uses the CPU
        node = {"num_cpus": 1, "num_gpus": 1}
        self.nodes = Nodes(initialize_head=True, head_node_args=node)
        self.nodes.add_node(**node)
        self.engine = f"ray:{self.nodes.address}"
        self.notes = notes
        self._pair: RayModel | None = None

    def pair(self, config: RunConfig) -> RayModel:
        """The model of a config in two workers; they go on from test to test."""
        if self._pair is None or self._pair.name != config.model:
            self.empty()
            there = config.model_copy(update={"engine": self.engine, "workers": 2})
            spec = load_task(config.task, 4).spec
            self._pair = RayModel(there, spec, worker=noting(self.notes))
        return self._pair

    def empty(self) -> str:
        """End the pair, for a test that has workers of its own; return the cluster's address."""
        if self._pair is not None:
            self._pair.close()
        self._pair = None
        for file in self.notes.iterdir():
            file.unlink()
        return self.engine

    @property
    def processes(self) -> set[int]:
        """The numbers of all processes that the pair ever had."""
        return {int(file.name) for file in self.notes.iterdir()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    ray = pytest.importorskip("ray")
    made = Cluster(tmp_path_factory.mktemp("notes"))
    yield made
    made.empty()
    ray.shutdown()
    made.nodes.shutdown()


def finish(config: RunConfig, out: Path, model: RayModel | None = None) -> SavedRun:
    """Do a run to its end: here, or with a pair of workers."""
    folder = RunFolder(out)
    folder.create()
    result_of(run(config, folder, model=model))
    return SavedRun(out)


def prompt_bytes(saved: SavedRun) -> bytes:
    return saved.files.prompt.read_bytes()


def losses(saved: SavedRun) -> list[list[float]]:
    return [line["losses"] for line in saved.history]


@pytest.mark.parametrize("method", ["saes-id-cr", "one-plus-one-id-cr", "bbt"])
def test_two_workers_find_the_prompt_that_one_process_finds(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path, tmp_path: Path, method: str
) -> None:
    config = make(folders("llama"), task_file, method=method)
    serial = finish(config, tmp_path / "serial")
    parted = finish(config, tmp_path / "ray", cluster.pair(config))
    assert prompt_bytes(serial) == prompt_bytes(parted)
    for mine, theirs in zip(losses(serial), losses(parted), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_the_same_blocks_give_the_same_bits(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """With as many candidates in a call as a worker has, every loss is the same to the last bit."""
    serial = finish(make(folders("llama"), task_file, block=3), tmp_path / "serial")
    config = make(folders("llama"), task_file)
    parted = finish(config, tmp_path / "ray", cluster.pair(config))
    assert losses(serial) == losses(parted)
    assert prompt_bytes(serial) == prompt_bytes(parted)


def test_answers_do_not_depend_on_how_they_are_parted(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path
) -> None:
    model = cluster.pair(make(folders("llama"), task_file))
    local = pfes.load_model(str(folders("llama")))
    for name in ("family", "width", "vocabulary", "max_length", "precision"):
        assert getattr(model, name) == getattr(local, name)
    np.testing.assert_array_equal(model.embed([3, 4]), local.embed([3, 4]))
    task = load_task(task_file, 4)
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


def test_a_worker_asks_for_a_gpu_where_there_are_any(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path
) -> None:
    cluster.pair(make(folders("llama"), task_file))
    seen = [file.read_text() for file in cluster.notes.iterdir()]
    assert seen == ["0"] * len(seen), "the only one of its node"
    assert len(seen) >= 2


def test_a_worker_measures_the_size_of_a_pass(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path
) -> None:
    model = cluster.pair(make(folders("llama"), task_file))
    task = load_task(task_file, 4)
    batch = encode_for(model, task.spec, task.train, 2)
    prompts = np.ones((2, 2, model.width), dtype=np.float32)
    wanted = model.logprobs(prompts, batch)
    chosen = model.choose_batch_tokens(prompts[0], batch, 4)
    assert 1 <= chosen <= 8192
    for tokens in (chosen, 1, None):
        model.set_batch_tokens(tokens)
        np.testing.assert_allclose(model.logprobs(prompts, batch), wanted, atol=1e-5)


def test_a_killed_worker_changes_nothing(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    config = make(folders("llama"), task_file)
    model = cluster.pair(config)
    whole = finish(config, tmp_path / "whole", model)
    (*_, victim) = before = cluster.processes
    folder = RunFolder(tmp_path / "killed")
    folder.create()
    steps = 0
    for event in run(config, folder, model=model):
        steps += isinstance(event, Step)
        if isinstance(event, Step) and steps == 2:
            os.kill(victim, signal.SIGKILL)
    assert len(cluster.processes) == len(before) + 1, "another process took its place"
    killed = SavedRun(folder.path)
    assert prompt_bytes(killed) == prompt_bytes(whole)
    assert losses(killed) == losses(whole)
    assert killed.history[-1]["evaluations"] == 36  # nothing is counted twice


def test_a_run_may_be_resumed_elsewhere(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """Begun in one process, gone on with in two workers: the checkpoint is all that it needs."""
    config = make(folders("bert"), task_file)
    whole = finish(config, tmp_path / "whole")
    folder = RunFolder(tmp_path / "parted")
    folder.create()
    for event in run(config, folder):
        if isinstance(event, Step) and event.evaluations >= 12:
            break
    place = {"engine": cluster.empty(), "workers": 2}
    pfes.search(str(folders("bert")), task_file, out=folder.path, resume=True, **place)
    assert prompt_bytes(SavedRun(folder.path)) == prompt_bytes(whole)


def outcome(events: Iterator[RunEvent]) -> tuple[set[int], dict[int, PfesError]]:
    """The numbers of the runs that ended with a result, and the errors of the others."""
    last = {event.number: event.event for event in events}
    ended = {number for number, event in last.items() if isinstance(event, pfes.Result)}
    failed = {number: event for number, event in last.items() if isinstance(event, PfesError)}
    assert ended | set(failed) == set(last)
    return ended, failed


def test_a_study_over_the_cluster(
    cluster: Cluster, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    spec = StudySpec(
        name="tiny", models=[str(folders("bert"))], tasks=[str(task_file)], seeds=[0, 1],
        defaults={k: v for k, v in SMALL.items() if k not in ("threads", "prompt_length")},
        rows=[{"method": "saes-id", "prompt_length": 2}, {"method": "bbt", "prompt_length": 300}],
    )  # fmt: skip
    plan = plan_runs(spec, {})
    engine, out = cluster.empty(), tmp_path / "ray"
    # one seed to an address, as of an object store; then both to the folder itself
    ended, failed = outcome(execute_on_ray(plan[:2], f"file://{out}", engine, threads=1))
    assert ended == {0}
    assert set(failed) == {1}  # its prompt is too long for the model
    assert "leaves no room for text" in str(failed[1])
    (first,) = out.glob("*/result.json")
    before = first.stat().st_mtime_ns
    ended, failed = outcome(execute_on_ray(plan, out, engine, threads=1))
    assert (ended, set(failed)) == ({0, 2}, {1, 3})
    assert first.stat().st_mtime_ns == before  # what is finished is not done again
    serial, _ = outcome(execute_runs(plan, tmp_path / "serial"))
    assert serial == ended
    for number in ended:
        pair = [SavedRun(place / plan[number].folder) for place in (out, tmp_path / "serial")]
        assert prompt_bytes(pair[0]) == prompt_bytes(pair[1])


def test_a_worker_that_cannot_load_says_so(
    cluster: Cluster, task_file: Path, tmp_path: Path
) -> None:
    folder = tiny.save_folder("bert", tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"damaged")
    spec = load_task(task_file, 4).spec
    there = make(folder, task_file, engine=cluster.empty(), workers=1)
    with pytest.raises(PfesError, match="cannot be loaded"):
        RayModel(there, spec)
    more = there.model_copy(update={"workers": 3})
    with pytest.raises(
        PfesError, match="workers: 3 with 1 threads and 1 GPUs each do not fit.* room for 2"
    ):
        RayModel(more, spec)


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
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    what = ("search", "--model", folders("bert"), "--task", task_file, "--shots", "4")
    done = call(*what, "--out", tmp_path / "x", "--engine", "ray")
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
        ([8, 64], 2, None, (2, 8)),  # which is the default
        ([8, 64], None, None, (2, 8)),
        ([8], 2, 0.5, (2, 4)),
        ([2], 3, 0, "Ray has room for 2"),
        ([8], 2, None, "2 with 1 threads and 1 GPUs each.* a part of a GPU each"),
    ],
)
def test_workers_get_what_a_node_has(
    nodes: list[int], workers: int | None, gpus: float | None, expected: object
) -> None:
    resources = [{"CPU": float(count), "GPU": 1.0} for count in nodes]
    ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": one} for one in resources])
    config = make_config(model="m", task="t", workers=workers, gpus_per_worker=gpus)
    count = workers or most_workers(ray, config)
    threads = most_threads(ray, config, count)
    if isinstance(expected, str):
        with pytest.raises(SettingError, match=expected) as caught:
            check_room(ray, config, count, threads)
        assert caught.value.setting == "workers"
    else:
        check_room(ray, config, count, threads)
        assert (count, threads) == expected


@pytest.mark.parametrize(
    ("gpus", "settings", "expected"),
    [
        ([], {}, 0),
        ([2], {}, 1),
        ([0, 4], {}, 1),
        ([2], {"device": "cpu"}, 0),
        ([2], {"gpus_per_worker": 0.0}, 0),
        ([2], {"gpus_per_worker": 0.25}, 0.25),
    ],
)
def test_gpus_are_asked_for_where_there_are_any(
    gpus: list[int], settings: dict[str, Any], expected: float
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": float(count)}} for count in gpus]
    nodes.append({"Alive": True, "Resources": {"CPU": 2.0}})
    nodes.append({"Alive": False, "Resources": {"CPU": 2.0, "GPU": 8.0} if not gpus else {}})
    ray = SimpleNamespace(nodes=lambda: nodes)
    assert gpus_of_worker(ray, make_config(model="m", task="t", **settings)) == expected
