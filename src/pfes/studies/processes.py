"""Do the runs of a study in several processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from pfes.errors import PfesError
from pfes.studies.execute import RunEvent, execute_runs
from pfes.studies.plan import PlannedRun

WAIT = 1.0  # seconds between two checks whether the workers are alive


def execute_in_processes(plan: list[PlannedRun], out: str | Path, jobs: int) -> Iterator[RunEvent]:
    """Do a study in `jobs` processes, which share the cores between them."""
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
    for worker in workers:
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
        for worker in workers:
            worker.kill()  # its run continues from its checkpoint when the study is run again
            worker.join()


def _work(
    plan: list[PlannedRun], out: str | Path, threads: int, parent: int, numbers: Any, events: Any
) -> None:
    import torch

    torch.set_num_threads(threads)

    def queued_numbers() -> Iterator[int]:
        while True:
            try:
                yield numbers.get(timeout=WAIT)
            except Empty:
                return

    for event in execute_runs(plan, out, queued_numbers()):
        if os.getppid() != parent:  # the parent process was killed: nobody reads the events
            os._exit(1)
        events.put(event)
    events.put(None)
