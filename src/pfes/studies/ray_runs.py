"""Do the runs of a study on a Ray cluster: each is a Ray task, its folder on shared storage."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

from pfes.config import RunConfig, is_served, make_config
from pfes.errors import PfesError, one_line
from pfes.models.ray.cluster import check_room, gpus_of_worker, start_ray
from pfes.studies.execute import RunEvent, check_plan, execute_runs
from pfes.studies.plan import PlannedRun
from pfes.studies.store import open_store, whole_address

WAIT = 0.5  # seconds between two checks of the cluster
RETRIES = 1  # how often a run is retried whose worker died


def execute_on_ray(
    plan: list[PlannedRun],
    out: str | Path,
    engine: str,
    threads: int,
    gpus_per_worker: float | None = None,
) -> Generator[RunEvent, None, None]:
    """Do a study on a cluster; finished runs are skipped, interrupted ones continue.

    `out` must be the same folder on every node, or an address that fsspec knows. A run whose worker
    dies or breaks is continued once from its checkpoint. A run that fails is reported, and the
    others go on.
    """
    store = open_store(out)
    check_plan(plan, store)
    config = _asked(plan, engine, gpus_per_worker)
    ray = start_ray(config)
    check_room(ray, config, 1, threads)
    gpus = gpus_of_worker(ray, config)
    from ray.util.queue import Queue

    events: Any = Queue()
    remote_run = ray.remote(_do_run).options(
        num_cpus=threads, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=True
    )
    pending = {}
    for number, planned in enumerate(plan):
        try:
            result = store.result(planned.folder)
        except PfesError as error:
            yield RunEvent(number, error)
            continue
        if result is not None:
            yield RunEvent(number, result)
        else:
            pending[remote_run.remote(plan, whole_address(out), number, threads, events)] = number
    try:
        while pending:
            ready, _ = ray.wait(list(pending), timeout=WAIT)
            yield from events.get_nowait_batch(events.qsize())
            for reference in ready:
                number = pending.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayError as error:
                    message = f"its worker died twice: {one_line(error, 200)}"
                    yield RunEvent(number, PfesError(message))
        yield from events.get_nowait_batch(events.qsize())
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        events.shutdown(force=True)


def _asked(plan: list[PlannedRun], engine: str, gpus: float | None) -> RunConfig:
    """Return what the cluster is asked for; runs that all take place elsewhere need no GPU."""
    here = [run.config for run in plan if not is_served(run.config.model)]
    if gpus is None and all(config.device == "cpu" for config in here):
        gpus = 0.0
    return make_config(model="", task="", engine=engine, gpus_per_worker=gpus)


def _do_run(plan: list[PlannedRun], out: str, number: int, threads: int, events: Any) -> None:
    """Do one run in a worker, and put its events into the queue of the process that shows them."""
    import torch

    torch.set_num_threads(threads)
    for event in execute_runs(plan, out, [number]):
        events.put(event)
