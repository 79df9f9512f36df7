"""Imports point downwards, and the tool that checks it can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache"]
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_layers_hold(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "Contracts: 3 kept, 0 broken." in done.stdout


def test_a_lazy_import_upwards_is_found(copy: Path) -> None:
    file = copy / "src/pfes/tasks/split.py"
    file.write_text(file.read_text() + "\n\ndef up():\n    from pfes.runs import run\n")
    done = lint(copy)
    assert done.returncode == 1
    assert "pfes.tasks.split -> pfes.runs.run" in done.stdout
