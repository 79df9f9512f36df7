"""The part of a run's page about what was chosen before its search."""

import math
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from pfes.reporting.pages.parts import Cell, Row, folded, paragraph, table
from pfes.runs.saved import SavedRun
from pfes.searches.starts import FIRST_LOOK, StartRecord, StartTrial

STARTS = 15  # the page lists at most this many
NOTHING = "nothing"  # the name of the start without anything in front
MISSING = "–"
CHOSEN = Cell("chosen", "chosen", "best")
NOT_CHOSEN = Cell("")
ABOUT_STARTS = (
    "What may stand in front of every text, judged by cross-validation on labelled examples: all "
    "starts on a few, then the best of them on more. The last judgement of each is shown."
)


def chosen_parts(run: SavedRun) -> Iterator[Markup]:
    """Yield what was found out about the data, and where the search started.

    There is nothing to show where a person has chosen all of it.
    """
    choices, start = run.choices, run.result.start
    if choices is not None:
        yield paragraph(_data(choices))
        if choices["words"]:
            yield _words(choices["words"])
        if choices["templates"]:
            yield _templates(choices["templates"])
    if start is None or (choices is None and not start.trials and not start.evaluations):
        return
    if start.trials:
        yield paragraph(ABOUT_STARTS)
        yield from _starts(start)
    text = _text_in_front(run)
    name = "the task's own examples" if text and start.name == NOTHING else start.name
    yield paragraph(_settled(start, name))
    if text:
        yield folded(f"The text in front: {name} ({len(text)} characters)", text)


def _data(choices: dict[str, Any]) -> str:
    guessed = " (guessed: --label names another)" if choices["guessed"] else ""
    texts = " and ".join(f"column {name!r}" for name in choices["texts"])
    rows = f"{choices['rows']} rows"
    if choices["empty"]:
        rows += f", {choices['empty']} of them left out: they have no text or no label"
    return f"Label: column {choices['label']!r}{guessed}. Text: {texts}. {rows}."


def _words(words: list[dict[str, Any]]) -> Markup:
    rows: list[Row] = []
    for word in words:
        shown = Cell(repr(word["word"]), word["word"], "token")
        token = Cell(str(word["token"]), word["token"], "number")
        rows.append((word["label"], shown, token, word["source"]))
    return table("Words of the labels", ("label", "word", "token", "from"), rows)


def _templates(templates: list[dict[str, Any]]) -> Markup:
    rows: list[Row] = []
    for number, tried in enumerate(templates):
        text = Cell(tried["template"], tried["template"], "template")
        rows.append((text, _loss(tried["loss"]), NOT_CHOSEN if number else CHOSEN))
    head = ("template", "loss", "choice")
    return table("Templates, with their cross-validated loss", head, rows, row_heads=False)


def _starts(start: StartRecord) -> Iterator[Markup]:
    trials = last_judgements(start.trials)
    rows: list[Row] = []
    for trial in trials[:STARTS]:
        examples = Cell(str(trial.examples), trial.examples, "number")
        mark = CHOSEN if trial.name == start.name else NOT_CHOSEN
        rows.append((trial.name, _loss(trial.loss), examples, mark))
    head = ("in front", "loss", "examples", "choice")
    yield table("Starts, with their cross-validated loss", head, rows)
    if len(trials) > STARTS:
        yield paragraph(f"{len(trials) - STARTS} more were judged worse.")


def last_judgements(trials: list[StartTrial]) -> list[StartTrial]:
    """Return the last trial of each start: those that were looked at again first, then by loss.

    Losses of the first look and of the second, on more examples, cannot be compared.
    """
    last = {trial.name: trial for trial in trials}
    return sorted(
        last.values(), key=lambda trial: (trial.examples <= FIRST_LOOK, _order(trial.loss))
    )


def _order(loss: float | None) -> float:
    return math.inf if loss is None else loss


def _loss(loss: float | None) -> Cell:
    if loss is None:
        return Cell(MISSING, style="number")
    return Cell(f"{loss:.4f}", loss, "number")


def _settled(start: StartRecord, name: str) -> str:
    text = f"In front of every text: {name}."
    if start.sigma0 is not None:
        text += f" Step size σ at the start: {start.sigma0:.4g}."
    if start.evaluations:
        text += f" To choose these, {start.evaluations} evaluations of the budget were spent."
    return text


def _text_in_front(run: SavedRun) -> str:
    """Return the examples or the instruction in front of every text, as stored with the prompt."""
    if not run.files.prompt.exists():
        return ""
    return "".join(run.read_prompt()[1]["task"].get("demonstrations", ()))
