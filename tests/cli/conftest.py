"""What the tests of commands share: a command called in this process, a small search."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import call

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli() -> Cli:
    """Run a command line in this process; return exit code, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        done = call(*arguments)
        return done.returncode, done.stdout, done.stderr

    return run


def search(model: Path, task: Path, out: Path, /, **changes: object) -> list[object]:
    options = {"model": model, "task": task, "out": out, "shots": 4, "budget": 24, "population": 6}
    options |= {"prompt_length": 3, "sigma0": 0.5, "eval_every": 12} | changes
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return ["search", *(part for pair in pairs for part in pair)]


@pytest.fixture
def finished(cli: Cli, folders, task_file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "finished"
    assert cli(*search(folders("llama"), task_file, out))[0] == 0
    return out


def check_error(outcome: tuple[int, str, str], message: str) -> None:
    code, shown, log = outcome
    assert code == 2
    assert shown == ""
    assert len(log.splitlines()) == 1, log
    assert message in log
