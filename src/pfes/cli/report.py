"""`pfes report`: one page about a search."""

from pathlib import Path
from typing import Annotated

import typer

from pfes.folder import RunFolder


def report(
    folder: Annotated[Path, typer.Argument(help="run folder")],
    out: Annotated[
        Path | None, typer.Option(help="file to write [report.html in the run folder]")
    ] = None,
) -> None:
    """Write one self-contained page about a finished search: what it found and what it changed."""
    from pfes.errors import PfesError
    from pfes.pages.run import run_page

    text = run_page(RunFolder(folder))
    file = out or folder / "report.html"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PfesError(f"--out {file}: {error.strerror}") from None
    print(file)
