"""The command line, with one module per command."""

import sys
from typing import Annotated

import typer

from pfes import __version__
from pfes.cli import (
    analyze,
    cache,
    evaluate,
    export,
    fit,
    listings,
    predict,
    report,
    search,
    serve_check,
    study,
)
from pfes.errors import PfesError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"pfes {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="print the version")
    ] = False,
) -> None:
    """Search continuous prompts for language models you can only query."""


app.command("fit")(fit.fit)
app.command("search")(search.search)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("report")(report.report)
app.add_typer(study.study, name="study")
app.add_typer(analyze.analyze, name="analyze")
app.add_typer(listings.tasks, name="tasks")
app.command("serve-check")(serve_check.serve_check)
app.command("cache")(cache.cache)
app.command("models")(listings.models)
app.add_typer(listings.methods, name="methods")


def main() -> None:
    """Run the command line; an error the user can fix is printed as one line, with exit code 2."""
    try:
        app()
    except PfesError as error:
        print(f"pfes: {error.for_command_line}", file=sys.stderr)
        sys.exit(2)
