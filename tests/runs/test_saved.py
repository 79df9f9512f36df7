"""Reading a run: every part of it, without changing anything and without torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pfes
from pfes.errors import PfesError
from pfes.runs.folder import RunFolder
from pfes.runs.saved import SavedRun
from pfes.searches.reading import PLAIN
from tests.small_runs import begin, finish


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_saved_run_has_all_parts(task_file: Path, tmp_path: Path) -> None:
    result = finish(task_file, tmp_path / "run")
    saved = SavedRun(tmp_path / "run")
    assert saved.finished
    assert saved.config.model_dump() == result.config
    assert saved.result.test == result.test
    assert saved.history[-1]["evaluations"] == result.evaluations
    assert len(saved.answers) == result.test_examples == len(saved.task.test)
    assert saved.task.spec.name == result.task
    np.testing.assert_array_equal(saved.prompt, result.prompt)
    assert saved.checkpoint is not None
    assert repr(saved) == f"SavedRun({str(tmp_path / 'run')!r})"


@pytest.mark.parametrize("checkpoints", [True, False])
def test_reading_changes_nothing(task_file: Path, tmp_path: Path, checkpoints: bool) -> None:
    """Also where there is a history and no checkpoint: a resume would begin that history again."""
    finish(task_file, tmp_path / "run")
    if not checkpoints:
        for file in (tmp_path / "run").glob("checkpoint*"):
            file.unlink()
    before = contents(tmp_path / "run")
    saved = SavedRun(tmp_path / "run")
    for name in ("config", "task", "result", "history", "chosen_history", "prompt", "answers"):
        getattr(saved, name)
    assert (saved.checkpoint is not None) == checkpoints
    assert contents(tmp_path / "run") == before


def test_only_a_rewind_drops_history(task_file: Path, tmp_path: Path) -> None:
    events = begin(task_file, tmp_path / "run")
    for event in events:
        if getattr(event, "evaluations", 0) == 12:
            break
    events.close()
    folder = RunFolder(tmp_path / "run")
    sound = folder.files.history.read_bytes()
    with folder.files.history.open("ab") as file:
        file.write(b'{"half": ')
    assert SavedRun(folder.path).checkpoint is not None
    assert folder.files.history.read_bytes() != sound
    folder.rewind()
    assert folder.files.history.read_bytes() == sound


def test_what_is_not_there_is_said(task_file: Path, tmp_path: Path) -> None:
    with pytest.raises(PfesError, match="holds no run: it has no config.json"):
        SavedRun(tmp_path).result  # noqa: B018
    with pytest.raises(PfesError, match="does not exist"):
        SavedRun(tmp_path / "none").prompt  # noqa: B018
    events = begin(task_file, tmp_path / "run")
    for event in events:
        if getattr(event, "evaluations", 0):
            break
    events.close()
    begun = SavedRun(tmp_path / "run")
    assert not begun.finished
    with pytest.raises(PfesError, match="no result yet: continue its run with pfes search"):
        begun.result  # noqa: B018
    begun.files.prompt.unlink()
    with pytest.raises(PfesError, match="has no prompt"):
        begun.prompt  # noqa: B018


def test_reading_needs_no_torch(task_file: Path, tmp_path: Path) -> None:
    finish(task_file, tmp_path / "run")
    code = (
        "import sys, pfes\n"
        "run = pfes.SavedRun(sys.argv[1])\n"
        "run.config, run.task, run.result, run.history, run.prompt, run.answers, run.checkpoint\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "assert 'transformers' not in sys.modules, 'transformers was imported'\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_from_before_there_were_readings_is_read_plainly(
    task_file: Path, tmp_path: Path
) -> None:
    finish(task_file, tmp_path / "run")
    file = tmp_path / "run/config.json"
    stored = json.loads(file.read_text())
    assert stored.pop("reading") == "plain"
    file.write_text(json.dumps(stored))
    assert SavedRun(tmp_path / "run").config.reading == "plain"
    assert pfes.load_prompt(tmp_path / "run").reading is PLAIN
