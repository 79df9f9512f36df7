"""The runs of a study over a Ray cluster: a task each, its run folder on shared storage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pfes.config import make_config
from pfes.engines.ray_model import check_room, start_ray
from pfes.errors import PfesError
from pfes.studies.carry_out import RunEvent, carry_out
from pfes.studies.plan import PlannedRun
from pfes.studies.store import open_store, whole_address

WAIT = 0.5  # seconds between two looks at the cluster
RETRIES = 1  # of a run whose worker died, before it is reported


def carry_out_on_ray(
    plan: list[PlannedRun], out: str | Path, engine: str, threads: int, gpus: float = 0.0
) -> Iterator[RunEvent]:
    """Carry out a study on a cluster; finished runs are skipped, begun ones go on.

    `out` must be the same folder on every node, or an address that fsspec knows. A run whose worker
    dies or breaks is begun again where it stood, once; a run that fails is reported, and the others
    go on.
    """
    here = make_config(model="", task="", engine=engine, gpus_per_worker=gpus)
    ray = start_ray(here)
    check_room(ray, here, 1, threads)
    from ray.util.queue import Queue

    events: Any = Queue()
    remote = ray.remote(_one).options(
        num_cpus=threads, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=True
    )
    asked = {}
    store = open_store(out)
    for number, planned in enumerate(plan):
        try:
            ended = store.result(planned.folder)
        except PfesError as error:
            yield RunEvent(number, error)
            continue
        if ended is not None:
            yield RunEvent(number, ended)
        else:
            asked[remote.remote(plan, whole_address(out), number, threads, events)] = number
    try:
        while asked:
            ready, _ = ray.wait(list(asked), timeout=WAIT)
            yield from events.get_nowait_batch(events.qsize())
            for reference in ready:
                number = asked.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayError as error:
                    words = " ".join(str(error).split())[:200]
                    yield RunEvent(number, PfesError(f"its worker died, twice: {words}"))
        yield from events.get_nowait_batch(events.qsize())
    finally:
        for reference in asked:
            ray.cancel(reference, force=True)
        events.shutdown(force=True)


def _one(plan: list[PlannedRun], out: str, number: int, threads: int, events: Any) -> None:
    """Carry out one run in a worker; what happens goes to whoever shows the study."""
    import torch

    torch.set_num_threads(threads)
    for event in carry_out(plan, out, [number]):
        events.put(event)
