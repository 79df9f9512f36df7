"""The page of one run: its scores, search, answers and prompt."""

import numpy as np
from markupsafe import Markup

from pfes.reporting.pages.answers_part import answers_parts, changed, confidence, named_answers
from pfes.reporting.pages.chosen import chosen_parts
from pfes.reporting.pages.parts import Cell, Line, chart, grid, page, paragraph, section, table
from pfes.reporting.pages.reading_part import reading_parts
from pfes.reporting.pages.study_page import run_facts
from pfes.runs.result import Result
from pfes.runs.saved import History, SavedRun
from pfes.runs.versions import FREE_NOTE, figure, kept_sentence, versions
from pfes.studies.plan import model_name

POINTS = 400  # a curve has at most this many points


def run_page(run: SavedRun) -> str:
    """Return the page of a finished run."""
    result = run.result
    answers = named_answers(run)
    parts = []
    if result.test_examples:
        note = [paragraph(FREE_NOTE)] if result.free else []
        parts.append(section("Before and after", _before_after(result), *note))
    chosen = list(chosen_parts(run))
    if chosen:
        parts.append(section("What was chosen", *chosen))
    read = list(reading_parts(result))
    if read:
        parts.append(section("How answers are read", *read))
    history = run.chosen_history
    if history:
        parts.append(section("The search", grid(*_search_charts(history, result))))
    if answers:
        parts.append(section("Answers", *answers_parts(answers)))
        parts.append(
            section("Confidence", paragraph(_about_confidence(result)), confidence(answers))
        )
        parts.append(section("Sentences that changed their label", *changed(answers)))
    if result.nearest:
        parts.append(section("The prompt's tokens", paragraph(NEAREST), _nearest(result)))
    parts.append(section("Run", *run_facts(result)))
    model = model_name(result.model, result.config.get("served_name"))
    title = f"{result.task} · {model} · {result.method} · seed {result.seed}"
    return page(title, _lead(result), *parts)


def _lead(result: Result) -> str:
    return _figures(result) + (f" {kept_sentence(result)}" if result.kept_start else "")


def _figures(result: Result) -> str:
    if not result.test_examples:
        return (
            f"After {result.evaluations} function evaluations; no examples were held out to test."
        )
    low, high = result.intervals["gain"]
    lead = (
        f"{result.metric} {result.zero_shot:.4f} → {result.test:.4f} on {result.test_examples} "
        f"held-out examples ({result.gain:+.4f}; 95 % interval {low:+.4f} to {high:+.4f}), after "
        f"{result.evaluations} function evaluations."
    )
    if "over_free" in result.intervals:
        low, high = result.intervals["over_free"]
        lead += (
            f" The search added {result.over_free:+.4f} to the best that is free (95 % interval "
            f"{low:+.4f} to {high:+.4f})."
        )
    return lead


CONFIDENCE = (
    "The probability, over the whole vocabulary, of the word that the model answers with: how many "
    "test examples have how much."
)
READ = " That of the found prompt is the label's, among the labels, as it is read."
NEAREST = (
    "The tokens of the vocabulary nearest to each soft token, by cosine. A found prompt need not "
    "be readable: a low cosine means that no token is near."
)


def _about_confidence(result: Result) -> str:
    plain = result.reading.get("rung", "plain") == "plain"
    return CONFIDENCE if plain else CONFIDENCE + READ


def _before_after(result: Result) -> Markup:
    rows = []
    for version in versions(result):
        low, high = version.interval
        interval = Cell(f"{low:.4f} – {high:.4f}", low, "number")
        value = Cell(f"{version.value:.4f}", version.value, "number")
        auc = Cell(figure(version.auc), version.auc, "number")
        rows.append((version.title, value, interval, auc))
    caption = f"On {result.test_examples} held-out examples"
    return table(caption, ("prompt", result.metric, "95 % interval", "AUC"), rows)


def _search_charts(history: History, result: Result) -> list[Markup]:
    steps = [history[i] for i in _thinned(len(history))]
    spent = [line["evaluations"] for line in steps]
    candidates = [
        (line["evaluations"], value)
        for line in steps
        for value in line["losses"]
        if value is not None
    ]
    shown = [candidates[i] for i in _thinned(len(candidates), 5 * POINTS)]
    validated = [line for line in history if line["validation"] is not None]
    validations = [validated[i] for i in _thinned(len(validated))]
    x_title = "function evaluations"
    candidate_dots = Line("candidates", [x for x, _ in shown], [y for _, y in shown], dots=True)
    best = Line("best so far", spent, [line["best_loss"] for line in steps])
    sigma = Line("σ", spent, [line["sigma"] for line in steps])
    metric = Line(
        f"validation {result.metric}",
        [line["evaluations"] for line in validations],
        [line["validation"]["metric"] for line in validations],
    )
    chosen = Line("selected", [result.selected_at], [result.validation], dots=True)
    return [
        chart("Training loss", x_title, "loss", [best, candidate_dots]),
        chart("Validation", x_title, result.metric, [metric, chosen]),
        chart("Step size", x_title, "σ", [sigma], log=True),
    ]


def _thinned(count: int, limit: int = POINTS) -> list[int]:
    """Return at most `limit` evenly spaced indices below `count`, both ends included."""
    if count == 0:
        return []
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(count, limit)).round())]


def _nearest(result: Result) -> Markup:
    rows = []
    for number, tokens in enumerate(result.nearest, start=1):
        cells = [Cell(f"{token!r} {cosine:.2f}", cosine, "token") for token, cosine in tokens]
        rows.append((Cell(str(number), number), *cells))
    most = max(len(tokens) for tokens in result.nearest)
    head = ("position", *(f"{rank + 1}." for rank in range(most)))
    return table("Nearest tokens and their cosine", head, rows)
