"""Whole commands, each in a process of its own: to its first evaluation, and to its end."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.evaluation import MODEL, TASK
from benchmarks.timing import Row, in_turns
from pfes.system.downloads import cache_dir

REMEMBERED = {"paths.json", "batch-sizes.json", "precision.json"}  # what was measured before
SETTINGS = {
    "model": MODEL, "task": TASK, "method": "saes-id", "budget": 100, "eval_every": 20,
    "placement": "suffix", "prompt_length": 5, "init": "vocab", "test_limit": 400,
}  # fmt: skip
CODE = """
import sys
from pathlib import Path
from pfes.runs.start import start_run
from pfes.searches.loop import Step
settings, out, only_first = eval(sys.argv[1])
for event in start_run(settings, Path(out), resume=False).events():
    if only_first and isinstance(event, Step):
        break
"""


def run(cache: Path, only_first: bool, **changes: object) -> None:
    """Do a search in a process of its own, with a cache folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given = repr((SETTINGS | changes, f"{folder}/run", only_first))
        environment = os.environ | {"PFES_CACHE": str(cache)}
        subprocess.run([sys.executable, "-c", CODE, given], env=environment, check=True)


@contextmanager
def forgetful() -> Iterator[Path]:
    """Give a cache folder with everything that was downloaded and nothing that was measured."""
    with tempfile.TemporaryDirectory() as folder:
        for path in cache_dir().iterdir():
            if path.name not in REMEMBERED:
                (Path(folder) / path.name).symlink_to(path)
        yield Path(folder)


def first_evaluation() -> Iterator[Row]:
    """From the command to the end of the first generation."""

    def without() -> None:
        with forgetful() as cache:
            run(cache, only_first=True, population=2)

    ours, theirs = in_turns(3, lambda: run(cache_dir(), only_first=True, population=2), without)
    yield Row(
        "command to first evaluation, warm cache", "nothing remembered", ours / theirs, 0.5,
        "at most", f"{ours:.1f} s, {theirs:.1f} s",
    )  # fmt: skip


def whole_run() -> Iterator[Row]:
    """100 evaluations behind the text, with validation, and a test on 400 examples."""
    ours, theirs = in_turns(
        1,
        lambda: run(cache_dir(), only_first=False),
        lambda: run(cache_dir(), only_first=False, dtype="float32"),
    )
    yield Row(
        f"100 FEs with test, {MODEL}, suffix, start to end", "the same in float32", ours / theirs,
        0.8, "at most", f"{ours:.0f} s, {theirs:.0f} s",
    )  # fmt: skip
