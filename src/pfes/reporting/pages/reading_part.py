"""The part of a run's page about its reading: how it was chosen, and how far it can be trusted."""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from pfes.reporting.pages.parts import Cell, Line, Row, chart, grid, paragraph, table
from pfes.runs.result import Result

SHOWN = 7  # telling words of each label: more would break the labels' names
KINDS = {"plain": "the labels' words alone", "read": "as this run reads"}
RELIABILITY = (
    "Reliability: of the answers given with some probability, how many are right. On the diagonal "
    "a probability means what it says; below it the model is too sure. ECE is the mean distance "
    "from the diagonal, the Brier score the mean squared error of all probabilities; both are best "
    "at 0."
)
TELLING = (
    "Words that speak for a label most, of those the model might have answered: a high probability "
    "of such a word makes the label more likely."
)


def reading_parts(result: Result) -> Iterator[Markup]:
    """Yield how answers are read; nothing where a run has no test and a plain reading."""
    reading = result.reading
    if reading.get("rung", "plain") != "plain":
        yield paragraph(_description(result))
        if len(reading["cross_validation"]) > 1:
            rows = [
                (name, Cell(f"{loss:.4f}", loss, "number"), _share(reading["shares"][name]))
                for name, loss in reading["cross_validation"].items()
            ]
            yield table("The ladder", ("rung", "cross-validated loss", "weight"), rows)
    if reading.get("telling"):
        yield paragraph(TELLING)
    if reading.get("offsets"):
        yield _labels(reading)
    if result.calibration:
        yield paragraph(RELIABILITY)
        yield grid(_diagram(result), _scores(result))


def _description(result: Result) -> str:
    reading = result.reading
    losses = f"cross-validated loss {reading['plain_loss']:.4f} → {reading['loss']:.4f}"
    return f"Reading {reading['rung']!r}: slope {reading['slope']:.3f}; {losses}."


def _labels(reading: dict[str, Any]) -> Markup:
    """Return the offset of each label and the words that speak for it."""
    telling = {label: words[:SHOWN] for label, words in reading.get("telling", {}).items()}
    most = max((len(words) for words in telling.values()), default=0)
    rows: list[Row] = []
    for label, offset in reading["offsets"].items():
        words = [Cell(repr(word), style="token") for word in telling.get(label, [])]
        rows.append((label, Cell(f"{offset:+.3f}", offset, "number"), *words))
    head = ("label", "offset", *(f"{i + 1}." for i in range(most)))
    return table("Telling words" if most else "Offsets", head, rows)


def _share(share: float) -> Cell:
    return Cell(f"{share:.3f}", share, "number")


def _kinds(result: Result) -> dict[str, str]:
    """Return the readings to show; a plain one once."""
    plain = result.reading.get("rung", "plain") == "plain"
    return {
        k: t for k, t in KINDS.items() if k in result.calibration and not (plain and k == "read")
    }


def _diagram(result: Result) -> Markup:
    lines = [Line("a probability that means what it says", [0, 1], [0, 1])]
    for kind, title in _kinds(result).items():
        judged = result.calibration[kind]
        lines.append(Line(title, judged.confidences, judged.accuracies))
    return chart("Reliability", "probability of the answer", "part that is right", lines)


def _scores(result: Result) -> Markup:
    rows: list[Row] = []
    for kind, title in _kinds(result).items():
        judged = result.calibration[kind]
        figures = [Cell(f"{v:.4f}", v, "number") for v in (judged.ece, judged.brier)]
        rows.append((title, *figures))
    return table("Calibration on the test examples", ("answers read by", "ECE", "Brier"), rows)
