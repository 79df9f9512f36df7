"""`pfes export`: a found prompt as files for PEFT, transformers or vLLM."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pfes.cli.evaluate import Folder, Trust


def export(
    folder: Folder,
    kind: Annotated[
        Literal["peft", "safetensors", "vllm"], typer.Option("--format", help="for which program")
    ],
    out: Annotated[Path, typer.Option("--out", help="folder to write")],
    trust_remote_code: Trust = False,
) -> None:
    """Write a run's prompt for use elsewhere, with a card that says how."""
    from pfes.exports import export as write

    for path in write(folder, kind, out, trust_remote_code):
        print(path)
