"""`pfes fit`: from labelled data to a better classifier, without a setting to choose."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pfes.cli.data_columns import LabelColumn, TextColumns, dropped_sentence, show_columns
from pfes.cli.options import ALL, with_settings
from pfes.cli.results import show_result
from pfes.cli.search import INTERRUPTED
from pfes.errors import SettingError
from pfes.methods import get_method

if TYPE_CHECKING:
    from collections.abc import Generator

    from pfes.config import RunConfig
    from pfes.runs.choose_task import Choices
    from pfes.runs.result import Result

SETTINGS = tuple(name for name in ALL if name != "task")
DEFAULT_MODEL = "smollm2-135m"


@with_settings(SETTINGS)
def fit(
    settings: dict[str, Any],
    data: Annotated[
        str, typer.Argument(help="labelled CSV, TSV, JSONL or Parquet file, or a task")
    ],
    label: LabelColumn = None,
    text: TextColumns = None,
    template: Annotated[
        str | None, typer.Option(help="how a text is put to the model [the best of a few]")
    ] = None,
    word: Annotated[
        list[str] | None, typer.Option(help="LABEL=WORD, the word of a label [found]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="run folder to write [runs/NAME OF THE DATA]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON only")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="open the page of the result")] = False,
) -> None:
    """Make the best classifier of labelled data: find words, template and start, then search."""
    from pfes.runs.fit import Given, check_resumed, start_fit
    from pfes.runs.saved import SavedRun
    from pfes.runs.start import start_run

    folder = out or Path("runs") / Path(data).stem
    given = Given(label, tuple(text or ()), template, _words(word or []))
    saved = SavedRun(folder)
    if resume and saved.begun:
        check_resumed(saved, data, given)
        started = start_run(settings, folder, resume=True)
        config = started.config
        events: Generator[Any, None, Result] = started.events()
    else:
        fitting = start_fit(data, folder, {"model": DEFAULT_MODEL} | settings, given)
        if fitting.columns is not None and not as_json:
            show_columns(fitting.columns)
        config, events = fitting.config, fitting.events()
    result = _follow(events, config, folder, as_json)
    _finish(result, folder, as_json, open_page)


def _words(given: list[str]) -> dict[str, str]:
    words = {}
    for pair in given:
        label, sign, word = pair.rpartition("=")
        if not (label.strip() and sign and word.strip()):
            raise SettingError("word", f"{pair!r}: write LABEL=WORD")
        words[label.strip()] = word.strip()
    return words


def show_choices(choices: "Choices", config: "RunConfig") -> None:
    """Print the words and templates that were chosen, and how the search will go."""
    console = Console()
    task = choices.task
    if choices.words:
        table = Table(title="Words of the labels", title_justify="left")
        for column in ("label", "word", "token", "from"):
            table.add_column(column)
        for word in choices.words:
            table.add_row(Text(word.label), Text(repr(word.word)), str(word.token), word.source)
        console.print(table)
    for number, tried in enumerate(choices.templates):
        title = "Template" if number == 0 else "  not"
        loss = "given" if tried.loss is None else f"cross-validated loss {tried.loss:.3f}"
        line = f"{title} {tried.template!r}, {loss}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{len(task.train)} examples to train on, {len(task.validation)} to validate, "
        f"{len(task.test)} to test",
        highlight=False,
    )
    if task.dropped:
        console.print(dropped_sentence(task), highlight=False, soft_wrap=True)
    if get_method(config.method).optimizer is not None:
        limit = "" if config.minutes is None else f" or {config.minutes:g} minutes"
        line = f"Search: {config.method}, at most {config.budget} evaluations{limit}"
        console.print(line, highlight=False)


def _follow(
    events: "Generator[Any, None, Result]", config: "RunConfig", folder: Path, as_json: bool
) -> "Result":
    from pfes.cli.progress import display
    from pfes.runs.choose_task import Choices
    from pfes.runs.saved import SavedRun
    from pfes.system.stages import result_of

    with display(config.budget, as_json, config.minutes) as shown:

        def show(event: Any) -> None:
            if not isinstance(event, Choices):
                shown.show(event)
            elif not as_json:
                show_choices(event, config)

        try:
            return result_of(events, show)
        except KeyboardInterrupt:
            usable = SavedRun(folder).files.prompt.exists()
            kept = f" The best so far is in {folder}: pfes predict uses it." if usable else ""
            again = "Continue with the same command and --resume."
            print(f"\nStopped.{kept} {again}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def _finish(result: "Result", folder: Path, as_json: bool, open_page: bool) -> None:
    from pfes.reporting.pages.run_page import run_page
    from pfes.runs.saved import SavedRun
    from pfes.system.files import replace_file

    page = folder / "report.html"
    replace_file(page, run_page(SavedRun(folder)).encode())
    show_result(result, folder, as_json)
    if not as_json:
        console = Console()
        console.print(f"Page: {page}", highlight=False, soft_wrap=True, markup=False)
        console.print(
            f"Label a file:  pfes predict {folder} --file FILE --out labelled.csv\n"
            "From Python:   import pfes\n"
            f"               classifier = pfes.Classifier.from_run({str(folder)!r})\n"
            "               print(classifier.predict(['a text']))",
            highlight=False, soft_wrap=True, markup=False,
        )  # fmt: skip
    if open_page:
        typer.launch(str(page))
