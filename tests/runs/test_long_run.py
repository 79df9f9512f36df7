"""A long search holds its memory."""

import gc
from pathlib import Path

import psutil

from pfes.models.local.load import load_model
from pfes.searches.loop import Step
from tests.small_runs import begin

BUDGET = 8_000


def test_memory_of_eight_thousand_evaluations(folders, task_file: Path, tmp_path: Path) -> None:
    model = load_model(str(folders("llama")))
    changes = {"budget": BUDGET, "population": 20, "shots": 1, "eval_every": 2000, "test_limit": 4}
    process = psutil.Process()
    memory: list[int] = []
    for event in begin(task_file, tmp_path / "run", model=model, **changes):
        if isinstance(event, Step) and event.evaluations % 400 == 0:
            gc.collect()
            memory.append(process.memory_info().rss)
    assert len(memory) == BUDGET // 400
    warm = memory[len(memory) // 4]
    assert max(memory[-5:]) - warm < 16e6, f"grew by {(max(memory) - warm) / 1e6:.1f} MB"
