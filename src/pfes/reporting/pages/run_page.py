"""The page of one run: its scores, search, answers and prompt."""

from typing import Any

import numpy as np
from markupsafe import Markup

from pfes.reporting.pages.parts import Cell, Line, Row, chart, grid, page, paragraph, section, table
from pfes.reporting.pages.reading_part import reading_parts
from pfes.reporting.pages.study_page import run_facts
from pfes.runs.result import Result
from pfes.runs.saved import History, SavedRun
from pfes.runs.versions import FREE_NOTE, figure, versions
from pfes.studies.plan import model_name

ANSWERED = {"zero_shot": "template alone", "found": "found prompt"}
BINS = 20
SENTENCES = 500  # the page lists at most this many sentences that changed their label
POINTS = 400  # a curve has at most this many points


def run_page(run: SavedRun) -> str:
    """Return the page of a finished run."""
    result = run.result
    answers = _with_words(run)
    parts = []
    if result.test_examples:
        note = [paragraph(FREE_NOTE)] if result.free else []
        parts.append(section("Before and after", _before_after(result), *note))
    read = list(reading_parts(result))
    if read:
        parts.append(section("How answers are read", *read))
    history = run.chosen_history
    if history:
        parts.append(section("The search", grid(*_search_charts(history, result))))
    if answers:
        labels = list(answers[0]["zero_shot"])
        parts.append(section("Answers", grid(*(_confusion(answers, labels, n) for n in ANSWERED))))
        parts.append(
            section("Confidence", paragraph(_about_confidence(result)), _confidence(answers))
        )
        parts.append(section("Sentences that changed their label", *_changed(answers)))
    if result.nearest:
        parts.append(section("The prompt's tokens", paragraph(NEAREST), _nearest(result)))
    parts.append(section("Run", *run_facts(result)))
    model = model_name(result.model, result.config.get("served_name"))
    title = f"{result.task} · {model} · {result.method} · seed {result.seed}"
    return page(title, _lead(result), *parts)


def _lead(result: Result) -> str:
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


def _with_words(run: SavedRun) -> list[dict[str, Any]]:
    """Return a run's answers, with each label followed by its word unless they are equal."""
    if not run.answers:
        return []
    words = run.task.spec.verbalizers
    names = {str(k): str(k) if str(k) == word else f"{k}: {word}" for k, word in words.items()}
    answers = [dict(answer) for answer in run.answers]
    for answer in answers:
        answer["label"] = names[answer["label"]]
        for version in ANSWERED:
            # a NaN is stored as null; as 0 it is never the answer
            answer[version] = {names[label]: p or 0.0 for label, p in answer[version].items()}
    return answers


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


def _top(answer: dict[str, float]) -> str:
    """Return the most probable label, the first one if several are equal, as in scoring."""
    return max(answer, key=lambda label: answer[label])


def _confusion(answers: list[dict[str, Any]], labels: list[str], version: str) -> Markup:
    counts = {(true, given): 0 for true in labels for given in labels}
    for answer in answers:
        counts[answer["label"], _top(answer[version])] += 1
    rows: list[Row] = []
    for true in labels:
        total = sum(counts[true, given] for given in labels) or 1
        cells = [
            Cell(str(counts[true, g]), counts[true, g], "filled", share=counts[true, g] / total)
            for g in labels
        ]
        rows.append((true, *cells))
    caption = f"{ANSWERED[version].capitalize()}: true labels down, answers across"
    return table(caption, ("true label", *labels), rows)


def _confidence(answers: list[dict[str, Any]]) -> Markup:
    most = max(max(answer[version].values()) for answer in answers for version in ANSWERED)
    edges = np.linspace(0, most or 1.0, BINS + 1)
    middles = ((edges[1:] + edges[:-1]) / 2).round(6).tolist()
    lines = []
    for version, title in ANSWERED.items():
        values = [max(answer[version].values()) for answer in answers]
        counts = np.histogram(values, edges)[0]
        lines.append(Line(f"{title} (mean {np.mean(values):.3f})", middles, counts.tolist()))
    return chart("Confidence", "probability of the answer", "test examples", lines, bars=True)


def _changed(answers: list[dict[str, Any]]) -> list[Markup]:
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
                Cell(" · ".join(answer["fields"].values()), style="text"),
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


def _nearest(result: Result) -> Markup:
    rows = []
    for number, tokens in enumerate(result.nearest, start=1):
        cells = [Cell(f"{token!r} {cosine:.2f}", cosine, "token") for token, cosine in tokens]
        rows.append((Cell(str(number), number), *cells))
    most = max(len(tokens) for tokens in result.nearest)
    head = ("position", *(f"{rank + 1}." for rank in range(most)))
    return table("Nearest tokens and their cosine", head, rows)
