"""`pfes report`: write one page about a search."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="run folder")],
    out: Annotated[
        Path | None, typer.Option(help="file to write [report.html in the run folder]")
    ] = None,
) -> None:
    """Write one self-contained page about a finished search, its prompt and its effects."""
    from pfes.reporting.pages.run_page import run_page
    from pfes.runs.saved import SavedRun
    from pfes.system.files import replace_file

    file = out or folder / "report.html"
    replace_file(file, run_page(SavedRun(folder)).encode())
    print(file)
