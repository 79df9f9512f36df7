"""Do the runs of a study in several processes."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from pfes.config import is_served
from pfes.errors import PfesError, SettingError
from pfes.studies.execute import RunEvent, execute_runs
from pfes.studies.plan import PlannedRun
from pfes.system.devices import VISIBLE_GPUS, visible_gpus

WAIT = 1.0  # seconds between two checks whether the workers are alive
TO_SAVE = 10.0  # seconds that workers have to save their runs before they are killed


def share_gpus(plan: list[PlannedRun], jobs: int) -> list[str | None]:
    """Return the GPU that each of `jobs` processes has to itself; None where none is used.

    More processes than GPUs are refused: they would share one, each with a copy of the model.
    """
    configs = [planned.config for planned in plan]
    here = [config for config in configs if not is_served(config.model)]
    here = [config for config in here if config.engine == "serial" and config.device != "cpu"]
    gpus = visible_gpus() if here else []
    if jobs == 1 or not gpus:
        return [None] * jobs
    one = next((config.device for config in here if config.device not in (None, "cuda")), None)
    if one is not None:
        message = f"{jobs} processes would all use {one}: leave --device out, for a GPU each"
        raise SettingError("jobs", f"{message}, or use --jobs 1")
    if jobs > len(gpus):
        raise SettingError(
            "jobs",
            f"{jobs} processes need a GPU each, and this machine has {len(gpus)}: use --jobs "
            f"{len(gpus)}, or --device cpu",
        )
    return list(gpus[:jobs])


def execute_in_processes(
    plan: list[PlannedRun], out: str | Path, jobs: int
) -> Generator[RunEvent, None, None]:
    """Do a study in `jobs` processes, which share the cores, and have a GPU each if there are any.

    With `--device-map`, a model is spread over what its process sees: that one GPU, and the CPU.
    """
    gpus = share_gpus(plan, jobs)
    return _execute(plan, out, gpus)


def _execute(
    plan: list[PlannedRun], out: str | Path, gpus: list[str | None]
) -> Generator[RunEvent, None, None]:
    jobs = len(gpus)
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the threads of torch
    numbers: Any = spawn.Queue()
    events: Any = spawn.Queue()
    for number in range(len(plan)):
        numbers.put(number)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    workers = [
        spawn.Process(target=_work, args=(plan, out, threads, os.getpid(), numbers, events))
        for _ in range(jobs)
    ]
    # workers inherit that Ctrl-C is ignored: only this process handles it
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker, gpu in zip(workers, gpus, strict=True):
        with _seeing(gpu):
            worker.start()
    signal.signal(signal.SIGINT, handler)
    try:
        ended = 0
        while ended < jobs:
            try:
                event = events.get(timeout=WAIT)
            except Empty:
                exit_codes = [worker.exitcode for worker in workers if worker.exitcode]
                if exit_codes:
                    raise PfesError(
                        f"a worker of the study ended with code {exit_codes[0]}; run the study "
                        "again to continue, with fewer --jobs if it ran out of memory"
                    ) from None
                continue
            if event is None:
                ended += 1
            else:
                yield event
    finally:
        _end(workers)


@contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Let processes that are started meanwhile see one GPU only; they call it the first."""
    before = os.environ.get(VISIBLE_GPUS)
    if gpu is not None:
        os.environ[VISIBLE_GPUS] = gpu
    try:
        yield
    finally:
        if gpu is not None:
            del os.environ[VISIBLE_GPUS]
        if before is not None:
            os.environ[VISIBLE_GPUS] = before


def _end(workers: list[Any]) -> None:
    """End the workers; their runs go on from their checkpoints when the study is run again."""
    for worker in workers:
        worker.terminate()
    latest = time.monotonic() + TO_SAVE
    for worker in workers:
        worker.join(max(0.0, latest - time.monotonic()))
        worker.kill()
        worker.join()


def _work(
    plan: list[PlannedRun], out: str | Path, threads: int, parent: int, numbers: Any, events: Any
) -> None:
    import torch

    signal.signal(signal.SIGTERM, _stop)
    torch.set_num_threads(threads)

    def queued_numbers() -> Iterator[int]:
        while True:
            try:
                yield numbers.get(timeout=WAIT)
            except Empty:
                return

    try:
        with closing(execute_runs(plan, out, queued_numbers())) as runs:
            for event in runs:
                if os.getppid() != parent:  # the parent process was killed
                    _stop()
                events.put(event)
    except SystemExit:
        os._exit(1)  # the run is saved; nobody reads the events that are still in the queue
    events.put(None)


def _stop(*_: object) -> None:
    """End this process by way of all that has something to save."""
    sys.exit(1)
