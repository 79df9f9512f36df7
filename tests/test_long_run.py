"""A long search holds its memory and its pace."""

import gc
import time
from pathlib import Path
from statistics import median

import psutil
import pytest

from pfes.config import make_config
from pfes.folder import RunFolder
from pfes.loop import Step
from pfes.run import run

BUDGET, POPULATION = 20_000, 20


@pytest.mark.parametrize("method", ["saes-id-cr"])
def test_memory_and_pace_of_twenty_thousand_evaluations(
    folders, task_file: Path, tmp_path: Path, method: str
) -> None:
    config = make_config(
        model=str(folders("llama")), task=str(task_file), method=method, budget=BUDGET,
        population=POPULATION, shots=1, prompt_length=2, eval_every=2000, test_limit=4, threads=1,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    folder.create()
    process = psutil.Process()
    memory: list[int] = []
    pace: list[float] = []  # of this process alone, so that other load does not count
    last = time.process_time()
    for event in run(config, folder):
        if not isinstance(event, Step):
            continue
        now = time.process_time()
        pace.append(now - last)
        if event.evaluations % 1000 == 0:
            gc.collect()
            memory.append(process.memory_info().rss)
        last = time.process_time()
    assert len(pace) == BUDGET // POPULATION
    warm = memory[len(memory) // 4]
    assert max(memory[-5:]) - warm < 16e6, f"grew by {(max(memory) - warm) / 1e6:.1f} MB"
    early, late = median(pace[100:300]), median(pace[-200:])
    assert late < 2 * early, f"{early * 1e3:.2f} ms a generation, then {late * 1e3:.2f} ms"
