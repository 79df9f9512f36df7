"""What goes wrong on real machines: damaged files, full disks, two processes, no numbers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.contract import Batch, Floats
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event
from pfes.runs.saved import SavedRun
from pfes.searches.loop import Step
from pfes.system.files import replace_json
from tests import small_runs
from tests.command import call
from tests.small_runs import finish, search_command
from tests.stand_in import StandIn

LONGER = {"budget": 60, "checkpoint_seconds": 0}  # a checkpoint after every step
COMMAND = [sys.executable, "-c", "from pfes.cli import main; main()"]


def begin(task_file: Path, out: Path, resume: bool = False) -> Generator[Event, None, Result]:
    return small_runs.begin(task_file, out, resume=resume, **LONGER)


def cut_off(task_file: Path, out: Path, steps: int = 6) -> RunFolder:
    """Leave a run in the middle."""
    events = begin(task_file, out)
    for event in events:
        steps -= isinstance(event, Step)
        if not steps:
            break
    events.close()
    return RunFolder(out)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_last(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


def flip_first(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(bytes(content))


def assert_same_prompt(whole: Path, other: Path) -> None:
    contents = [(folder / "prompt.safetensors").read_bytes() for folder in (whole, other)]
    assert contents[0] == contents[1]


DAMAGES = [truncate, empty, flip_last, flip_first]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    task_file: Path, tmp_path: Path, damage: Callable[[Path], None], caplog
) -> None:
    list(begin(task_file, tmp_path / "whole"))
    folder = cut_off(task_file, tmp_path / "cut")
    damage(folder.files.checkpoint)
    list(begin(task_file, tmp_path / "cut", resume=True))
    assert "going on from the checkpoint before" in caplog.text
    assert_same_prompt(tmp_path / "whole", tmp_path / "cut")
    histories = [SavedRun(tmp_path / name).history for name in ("whole", "cut")]
    whole, cut = ([line | {"seconds": None} for line in history] for history in histories)
    assert cut == whole


@pytest.mark.parametrize("damage", DAMAGES)
def test_two_damaged_checkpoints_are_named(
    task_file: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = cut_off(task_file, tmp_path / "cut")
    before = folder.files.history.read_bytes()
    damage(folder.files.checkpoint)
    damage(folder.files.previous_checkpoint)
    with pytest.raises(PfesError, match="checkpoint.safetensors"):
        list(begin(task_file, tmp_path / "cut", resume=True))
    assert folder.files.history.read_bytes() == before


def test_a_history_that_lost_its_end_goes_on_one_step_before(
    task_file: Path, tmp_path: Path
) -> None:
    list(begin(task_file, tmp_path / "whole"))
    folder = cut_off(task_file, tmp_path / "cut")
    truncate(folder.files.history)
    list(begin(task_file, tmp_path / "cut", resume=True))
    assert_same_prompt(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("damage", [empty, flip_first])
def test_a_damaged_history_is_named(
    task_file: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = cut_off(task_file, tmp_path / "cut")
    damage(folder.files.history)
    with pytest.raises(PfesError, match=r"history\.jsonl is damaged"):
        list(begin(task_file, tmp_path / "cut", resume=True))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_prompt_is_named(
    task_file: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    list(begin(task_file, tmp_path / "run"))
    damage(tmp_path / "run" / "prompt.safetensors")
    with pytest.raises(PfesError, match="prompt.safetensors"):
        SavedPrompt.load(tmp_path / "run")


@pytest.mark.parametrize("damage", [truncate, empty])
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_damaged_json_file_is_named(
    task_file: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    list(begin(task_file, tmp_path / "run"))
    damage(tmp_path / "run" / name)
    with pytest.raises(PfesError, match=name):
        SavedPrompt.load(tmp_path / "run")


def test_a_config_of_another_version(task_file: Path, tmp_path: Path) -> None:
    folder = cut_off(task_file, tmp_path / "cut")
    stored = json.loads(folder.files.config.read_text())
    assert stored["pfes"] == pfes.__version__
    replace_json(folder.files.config, stored | {"pfes": "9.1", "warp": 3})
    with pytest.raises(PfesError, match=r"config\.json, written by pfes 9\.1: warp"):
        SavedRun(folder.path).config  # noqa: B018


def command(model: Path, task_file: Path, out: Path, **changes: Any) -> list[str]:
    return [*COMMAND, *search_command(model, task_file, out, **LONGER | changes)]


def test_a_full_disk_leaves_a_run_that_goes_on(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """The history reaches the largest size that the system lets a file have."""
    longer = {"budget": 300}  # so that the history outgrows every other file
    done = call(*search_command(folders("bert"), task_file, tmp_path / "whole", **longer))
    assert done.returncode == 0
    size = (tmp_path / "whole" / "checkpoint.safetensors").stat().st_size
    lines = (tmp_path / "whole" / "history.jsonl").stat().st_size
    task = (tmp_path / "whole" / "task.json").stat().st_size
    limit = max(size, task, lines // 2) + 200
    assert limit < lines, "the history must be what outgrows the limit"
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "from pfes.cli import main; main()"
    )
    words = command(folders("bert"), task_file, tmp_path / "run", **longer)
    full = [sys.executable, "-c", code, *words[3:]]
    done = subprocess.run(full, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "history.jsonl cannot be written: File too large" in last
    again = call("search", "--out", tmp_path / "run", "--resume")
    assert again.returncode == 0
    prompts = [(tmp_path / name / "prompt.safetensors").read_bytes() for name in ("whole", "run")]
    assert prompts[0] == prompts[1]


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    for n in range(2):
        folder.save_checkpoint({"n": n, "x": np.ones(3)})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PfesError, match="checkpoint.safetensors cannot be written: No space left"):
        folder.save_checkpoint({"n": 2, "x": np.zeros(3)})
    monkeypatch.undo()
    assert not list(tmp_path.glob("*.tmp"))
    state = SavedRun(tmp_path).checkpoint
    assert state is not None
    assert state["n"] == 1


def test_a_place_that_cannot_be_written_is_one_line(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for out in (Path("/proc/pfes"), tmp_path / "file" / "run"):
        done = call(*search_command(folders("bert"), task_file, out))
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"--out: {out}" in done.stderr


def test_a_folder_belongs_to_one_process(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = subprocess.Popen(
        command(folders("bert"), task_file, out, budget=1_000_000), stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            if (out / "checkpoint.safetensors").exists():
                break
            time.sleep(0.1)
        resume = ["search", "--out", str(out), "--resume", "--json"]
        second = call(*resume)
        assert second.returncode == 2
        assert second.stderr.count("\n") == 1
        assert "is in use by another process" in second.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    # shorten the run that was killed: only the lock is tested here
    stored = json.loads((out / "config.json").read_text())
    lines = (out / "history.jsonl").read_text().splitlines()
    stored["budget"] = json.loads(lines[-1])["evaluations"] + 60
    (out / "config.json").write_text(json.dumps(stored))
    third = call(*resume)
    assert third.returncode == 0, third.stderr


@pytest.mark.parametrize("error", [NotImplementedError("flock"), OSError(95, "not supported")])
def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog, error: Exception
) -> None:
    import filelock

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with RunFolder(tmp_path).locked():
        pass
    assert "no locks there" in caplog.text


class Faulty(StandIn):
    """Answers NaN, or an infinity, for every third candidate."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        answers = super().logprobs(prompts, batch)
        if len(answers) > 1:
            answers[::3] = self.value
        return answers


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["saes-id-cr", "one-plus-one-id-cr", "bbt", "zosgd-cr"])
def test_answers_that_are_no_numbers_are_never_chosen(
    task_file: Path, tmp_path: Path, value: float, method: str
) -> None:
    changes = {"method": method, "intrinsic_dimension": 4, "model": Faulty(value)}
    result = finish(task_file, tmp_path / "run", **LONGER | changes)
    assert np.isfinite(result.prompt).all()
    assert np.isfinite(result.train_loss)
