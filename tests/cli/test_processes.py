"""Commands as processes: killed, interrupted, on a terminal; what an import loads."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pfes.runs.saved import SavedRun
from tests.cli.conftest import Cli
from tests.command import hear_ctrl_c
from tests.small_runs import search_command


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from pfes.cli import main; main()", *map(str, arguments)]


def test_killed_and_resumed_run_is_byte_for_byte_the_same(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    changes = {"method": "one-plus-one-id-cr", "budget": 600, "eval_every": 200}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert cli(*search_command(folders("llama"), task_file, whole, **changes))[0] == 0
    arguments = search_command(folders("llama"), task_file, killed, **changes)
    process = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL)
    wait_for(lambda: len(SavedRun(killed).history) > 50, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "result.json").exists()
    assert cli(*arguments, "--resume")[0] == 0
    name = "prompt.safetensors"
    assert (whole / name).read_bytes() == (killed / name).read_bytes()


def test_ctrl_c_saves_and_says_how_to_resume(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    changes = {"method": "one-plus-one", "budget": 100_000}
    arguments = search_command(folders("llama"), task_file, out, **changes)
    process = subprocess.Popen(
        command(*arguments), stderr=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c
    )
    wait_for(lambda: len(SavedRun(out).history) > 5, process)
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"pfes search --out {out} --resume" in log
    assert "Traceback" not in log
    assert SavedRun(out).checkpoint is not None


def test_a_terminal_gets_live_bars(folders, task_file: Path, tmp_path: Path) -> None:
    arguments = search_command(folders("llama"), task_file, tmp_path / "run")
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "140", "TERM": "xterm"}
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end has closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    shown, _ = process.communicate(timeout=60)
    log = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode()
    assert process.returncode == 0, log
    assert "found prompt" in shown
    for words in (
        "loading model",
        "searching",
        "24/24",
        "best loss",
        "s/FE",
        "testing prompts",
    ):
        assert words in log


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    for _ in range(600):
        try:
            if condition():
                return
        except Exception:  # a line of the history is being written
            pass
        assert process.poll() is None, "the process ended early"
        time.sleep(0.1)
    process.kill()
    pytest.fail("the process did not get there")


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "sklearn", "matplotlib", "pydantic", "datasets", "typer"]
    code = f"import sys, pfes; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_optimizers_need_numpy_alone() -> None:
    heavy = ["torch", "transformers", "sklearn", "pydantic", "typer", "safetensors"]
    code = f"import sys; from pfes import SAES; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_listing_methods_does_not_load_torch() -> None:
    code = "import sys; sys.argv = ['pfes', 'methods']\nfrom pfes.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    environment = os.environ | {"COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)
