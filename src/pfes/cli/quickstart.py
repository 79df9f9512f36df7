"""`pfes quickstart`: improve a real model on a real task in minutes."""

from pathlib import Path
from typing import Annotated

import typer

from pfes.cli.search import run_and_show

# Two examples that show the task's form. With them, the model ranks well but favours one label.
START = """\
Review: a dull mess
Sentiment: negative

Review: a wonderful film
Sentiment: positive

"""

# Chosen by measurements (docs/defaults.md); all other settings are the defaults of `pfes search`
SETTINGS = {
    "model": "smollm2-135m",
    "task": "rotten-tomatoes",
    "method": "saes-id-cr",
    "budget": 200,
    "init": f"text:{START}",
    "sigma0": 0.03,
    "beta": 0.1,
    "eval_every": 20,
    "test_limit": 1000,
    "reading": "plain",  # the figures in docs/defaults.md are read so
    "free": "none",
}


def quickstart(
    out: Annotated[Path, typer.Option(help="run folder to write")] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="seed of the data split and the search")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON only")] = False,
) -> None:
    """Search a prompt that helps a small model label film reviews; ten minutes on two cores."""
    run_and_show(SETTINGS | {"seed": seed}, out, resume, as_json)
