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
