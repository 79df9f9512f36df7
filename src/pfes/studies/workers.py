"""The runs of a study in several processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from pfes.errors import PfesError
from pfes.studies.carry_out import RunEvent, carry_out
from pfes.studies.plan import PlannedRun

WAIT = 1.0  # seconds between two looks whether the workers live


def carry_out_in_processes(
    plan: list[PlannedRun], out: str | Path, jobs: int
) -> Iterator[RunEvent]:
    """Carry out a study in `jobs` processes, which share the cores between them."""
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
    hears = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: Ctrl-C is ours alone
    for worker in workers:
        worker.start()
    signal.signal(signal.SIGINT, hears)
    try:
        ended = 0
        while ended < jobs:
            try:
                event = events.get(timeout=WAIT)
            except Empty:
                dead = [w.exitcode for w in workers if w.exitcode]
                if dead:
                    raise PfesError(
                        f"a worker of the study ended with code {dead[0]}; run the study again to "
                        "go on, with fewer --jobs if it ran out of memory"
                    ) from None
                continue
            if event is None:
                ended += 1
            else:
                yield event
    finally:
        for worker in workers:
            worker.kill()  # a run that is cut off here goes on from its checkpoint
            worker.join()


def _work(
    plan: list[PlannedRun], out: str | Path, threads: int, parent: int, numbers: Any, events: Any
) -> None:
    import torch

    torch.set_num_threads(threads)

    def mine() -> Iterator[int]:
        while True:
            try:
                yield numbers.get(timeout=WAIT)
            except Empty:
                return

    for event in carry_out(plan, out, mine()):
        if os.getppid() != parent:  # whoever shows the study was killed: nobody is listening
            os._exit(1)
        events.put(event)
    events.put(None)
