"""Events that TensorBoard itself reads back."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from pfes.cli import main; main()", "search"]
SMALL = "--budget 30 --population 6 --shots 4 --prompt-length 2 --eval-every 12 --tensorboard"


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_events_are_those_of_the_history(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    place = ["--model", str(folders("llama")), "--task", str(task_file), "--out", str(out)]
    subprocess.run([*COMMAND, *place, *SMALL.split()], check=True, capture_output=True)
    history = [json.loads(line) for line in (out / "history.jsonl").open()]
    result = json.loads((out / "result.json").read_text())
    scalars = read(out / "tensorboard")
    steps = [line["evaluations"] for line in history]
    best = [pytest.approx(line["best_loss"]) for line in history]
    assert scalars["loss/best"] == list(zip(steps, best, strict=True))
    assert [value for _, value in scalars["sigma"]] == [
        pytest.approx(line["sigma"]) for line in history
    ]
    looks = [line for line in history if line["validation"] is not None]
    assert scalars["validation/metric"] == [
        (line["evaluations"], pytest.approx(line["validation"]["metric"])) for line in looks
    ]
    assert scalars["result/test"] == [(30, pytest.approx(result["test"]))]


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pfes.errors import PfesError
    from pfes.reporting.tensorboard import check_installed

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [n for n in sys.modules if n.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(PfesError, match=r"pip install 'pfes\[tensorboard\]'"):
        check_installed()
