"""The parts of a run's page about its answers to the test examples, before and after."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from markupsafe import Markup

from pfes.reporting.pages.parts import Cell, Line, Row, chart, grid, paragraph, table
from pfes.runs.saved import SavedRun

ANSWERED = {"zero_shot": "template alone", "found": "found prompt"}
BINS = 20
SENTENCES = 500  # the page lists at most this many sentences that changed their label
CHARACTERS = 400  # of each
SIDE_BY_SIDE = 4  # matrices of more labels stand one below the other, with upright names

BY_LABEL = (
    "How much of each label's examples is answered right, before with the template alone, after "
    "with the found prompt; and how much of the found prompt's answers with this label is right: "
    "its precision."
)


def named_answers(run: SavedRun) -> list[dict[str, Any]]:
    """Return a run's answers, with each label followed by its word.

    A label is enough where it equals its word, or where the page lists all words elsewhere and the
    label is no number.
    """
    if not run.answers:
        return []
    listed = bool(run.choices and run.choices["words"])
    names = {}
    for label, word in run.task.spec.verbalizers.items():
        clear = label == word or (listed and any(letter.isalpha() for letter in label))
        names[label] = label if clear else f"{label}: {word}"
    answers = [dict(answer) for answer in run.answers]
    for answer in answers:
        answer["label"] = names[answer["label"]]
        for version in ANSWERED:
            # a NaN is stored as null; as 0 it is never the answer
            answer[version] = {names[label]: p or 0.0 for label, p in answer[version].items()}
    return answers


def _top(answer: dict[str, float]) -> str:
    """Return the most probable label, the first one if several are equal, as in scoring."""
    return max(answer, key=lambda label: answer[label])


def answers_parts(answers: list[dict[str, Any]]) -> Iterator[Markup]:
    """Yield the confusion matrices, and how many answers are right for each label."""
    labels = list(answers[0]["zero_shot"])
    matrices = [_confusion(answers, labels, version) for version in ANSWERED]
    if len(labels) <= SIDE_BY_SIDE:
        yield grid(*matrices)
    else:
        yield paragraph(BY_LABEL)
        yield _by_label(answers, labels)
        yield from matrices


def _confusion(answers: list[dict[str, Any]], labels: list[str], version: str) -> Markup:
    counts = {(true, given): 0 for true in labels for given in labels}
    for answer in answers:
        counts[answer["label"], _top(answer[version])] += 1
    rows: list[Row] = []
    for true in labels:
        total = sum(counts[true, given] for given in labels) or 1
        cells = [_count(true, given, counts[true, given], total) for given in labels]
        rows.append((true, *cells))
    caption = f"{ANSWERED[version].capitalize()}: true labels down, answers across"
    style = "matrix" if len(labels) <= SIDE_BY_SIDE else "upright matrix"
    return table(caption, ("true label", *labels), rows, style=style)


def _count(true: str, given: str, count: int, total: int) -> Cell:
    if not count:
        return Cell("0", 0, "filled none")
    note = f"{count} of {total} {true!r} answered as {given!r}"
    return Cell(str(count), count, "filled", note, share=count / total)


def _by_label(answers: list[dict[str, Any]], labels: list[str]) -> Markup:
    """Return for each label how many of its examples are answered right, before and after."""
    rows: list[Row] = []
    for label in labels:
        own = [answer for answer in answers if answer["label"] == label]
        right = [sum(_top(answer[version]) == label for answer in own) for version in ANSWERED]
        shares = [_share(count, len(own)) for count in right]
        given = sum(_top(answer["found"]) == label for answer in answers)
        precision = _share(right[-1], given)
        rows.append((label, Cell(str(len(own)), len(own), "number"), *shares, precision))
    head = ("label", "examples", "before", "after", "precision")
    return table("Label by label", head, rows)


def _share(part: int, whole: int) -> Cell:
    return Cell(f"{part / whole:.3f}", part / whole, "number") if whole else Cell("–")


def confidence(answers: list[dict[str, Any]]) -> Markup:
    """Return how many answers have how much probability."""
    most = max(max(answer[version].values()) for answer in answers for version in ANSWERED)
    edges = np.linspace(0, most or 1.0, BINS + 1)
    middles = ((edges[1:] + edges[:-1]) / 2).round(6).tolist()
    lines = []
    for version, title in ANSWERED.items():
        values = [max(answer[version].values()) for answer in answers]
        counts = np.histogram(values, edges)[0]
        lines.append(Line(f"{title} (mean {np.mean(values):.3f})", middles, counts.tolist()))
    return chart("Confidence", "probability of the answer", "test examples", lines, bars=True)


def changed(answers: list[dict[str, Any]]) -> list[Markup]:
    """Return how many answers became right or wrong, and a table of all that changed."""
    rows, mended, broken = [], 0, 0
    for answer in answers:
        before, after = _top(answer["zero_shot"]), _top(answer["found"])
        if before == after:
            continue
        mended += after == answer["label"]
        broken += before == answer["label"]
        verdict = "mended" if after == answer["label"] else "broken"
        if answer["label"] not in (before, after):
            verdict = "both wrong"
        probability = answer["found"][after]
        rows.append(
            (
                _text(" · ".join(answer["fields"].values())),
                Cell(answer["label"], answer["label"]),
                Cell(before, before),
                Cell(after, after),
                Cell(verdict, verdict),
                Cell(f"{probability:.3f}", probability, "number"),
            )
        )
    text = f"{mended} of {len(answers)} answers became right, {broken} became wrong."
    if not rows:
        return [paragraph(text)]
    if len(rows) > SENTENCES:
        text += f" The first {SENTENCES} of {len(rows)} are shown."
    head = ("text", "true label", *ANSWERED.values(), "change", "probability")
    shown = table("Answers that changed", head, rows[:SENTENCES], row_heads=False)
    return [paragraph(text), shown]


def _text(text: str) -> Cell:
    """Return the cell of a text; the pointer shows the rest of a long one."""
    if len(text) <= CHARACTERS:
        return Cell(text, style="text")
    return Cell(text[:CHARACTERS] + " …", style="text", note=text)
