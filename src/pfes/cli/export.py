"""`pfes export`: write a run's prompt as files for PEFT, transformers, vLLM or an API of text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pfes.cli.evaluate import Folder, Trust


def export(
    folder: Folder,
    kind: Annotated[
        Literal["peft", "safetensors", "vllm", "text"],
        typer.Option("--format", help="the kind of files to write"),
    ],
    out: Annotated[Path, typer.Option("--out", help="folder to write")],
    trust_remote_code: Trust = False,
) -> None:
    """Write a run's prompt for use in other programs, with a README that says how."""
    from pfes.deploy.export import export as write

    for path in write(folder, kind, out, trust_remote_code):
        print(path)
