"""`pfes quickstart`: a real model gets better at a real task, in minutes."""

from pathlib import Path
from typing import Annotated

import typer

from pfes.cli.search import run_and_show
from pfes.folder import RunFolder

# Two examples that show the task's form: they rank sentences well, but lean to one label
START = """\
Review: a dull mess
Sentiment: negative

Review: a wonderful film
Sentiment: positive

"""

# Chosen by measuring, see docs/defaults.md; what is not here is the default of `pfes search`
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
}


def quickstart(
    out: Annotated[Path, typer.Option(help="run folder to write")] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="of the split and the search")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON only")] = False,
) -> None:
    """Search a prompt for the embedded model on film reviews; about ten minutes on two cores."""
    run_and_show(SETTINGS | {"seed": seed}, RunFolder(out), resume, as_json)
