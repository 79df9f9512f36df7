"""Fifty searches killed at random moments, each resumed: the bytes of one that was left alone."""

import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pfes.runs.run_files import RunFiles
from pfes.runs.saved import SavedRun
from tests.command import call
from tests.small_runs import search_command

pytestmark = pytest.mark.slow

PRELOADED = ["pfes.models.local.load", "pfes.runs.run", "transformers.models.llama.modeling_llama"]
KILLS = 10  # of each run
METHODS: dict[str, dict[str, Any]] = {
    "one-plus-one-id-cr": {"budget": 750, "reading": "auto"},
    "saes-id-cr": {"budget": 1500, "beta": "auto"},
    "bbt": {"budget": 1500, "intrinsic_dimension": 20},
    "zosgd-cr": {"budget": 750},
    "bdpl": {"budget": 750, "candidate_tokens": 20},
}
assert KILLS * len(METHODS) == 50


def contents(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but for the time that it took."""
    run, files = SavedRun(folder), RunFiles(folder)
    result = json.loads(files.result.read_text())
    state = run.checkpoint
    assert state is not None
    return {
        "prompt": files.prompt.read_bytes(),
        "answers": files.answers.read_bytes(),
        "start": files.start.read_bytes(),
        "task": files.task.read_bytes(),
        "history": [line | {"seconds": None} for line in run.history],
        "result": result | {"seconds_per_evaluation": None, "profile": None},
        "state": repr(untimed(state["search"])),
    }


def untimed(state: Any) -> Any:
    """A state without its seconds, with arrays as bytes."""
    if isinstance(state, dict):
        return {name: untimed(value) for name, value in state.items() if name != "seconds"}
    return state.tobytes() if hasattr(state, "tobytes") else state


def evaluations(history: Path) -> int:
    """How far a search is, by the last whole line of its history."""
    if not history.exists():
        return 0
    with history.open("rb") as file:
        file.seek(max(0, history.stat().st_size - 4000))
        lines = file.read().split(b"\n")[1:-1]
    return int(json.loads(lines[-1])["evaluations"]) if lines else 0


@pytest.mark.parametrize("method", METHODS)
def test_killed_ten_times(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, method: str
) -> None:
    changes = METHODS[method] | {"method": method, "checkpoint_seconds": 0.3}
    whole = call(*search_command(folders("llama"), task_file, tmp_path / "whole", **changes))
    assert whole.returncode == 0, whole.stderr
    out = tmp_path / "killed"
    words = search_command(folders("llama"), task_file, out, **changes)
    rng = random.Random(method)
    moments = sorted(rng.randrange(int(0.95 * changes["budget"])) for _ in range(KILLS))
    lost = []
    # processes of their own, forked from one that has imported everything: that takes seconds
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, *PRELOADED])
    for moment in moments:
        process = server.Process(target=call, args=(*words, "--resume"))
        process.start()
        while evaluations(RunFiles(out).history) < moment:
            assert process.is_alive(), "it ended before it was killed"
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        state = SavedRun(out).checkpoint
        before = len(SavedRun(out).history)
        lost.append(before if state is None else before - len(kept(state, SavedRun(out).history)))
    assert call(*words, "--resume").returncode == 0
    print(f"{method}: killed at {moments} evaluations; steps taken again: {lost}")
    assert any(lost), "no kill was between two checkpoints"
    assert contents(out) == contents(tmp_path / "whole")


def kept(state: dict[str, Any], history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps that a checkpoint has."""
    searches = state["search"].get("searches") or {"0": state["search"]}
    done = sum(search["evaluations"] for search in searches.values())
    return [line for line in history if line["evaluations"] <= done]
