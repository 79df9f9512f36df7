"""The page of one search: what it found, and what that changed."""

from typing import Any

import numpy as np

from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.pages.html import Cell, Line, Row, chart, grid, page, paragraph, section, table
from pfes.pages.study import run_facts
from pfes.result import Result
from pfes.run import read_result
from pfes.saved import SavedPrompt
from pfes.studies.plan import model_name

VERSIONS = {"zero_shot": "template alone", "initial": "initial prompt", "test": "found prompt"}
ANSWERED = {"zero_shot": "template alone", "found": "found prompt"}
BINS = 20
SENTENCES = 500  # that changed their label, at most on the page
POINTS = 400  # of a curve, at most


def run_page(folder: RunFolder) -> str:
    """Return the page of a finished run."""
    result = read_result(folder)
    if result is None:
        folder.read_json(folder.config)  # says so where there is no run at all
        raise PfesError(
            f"{folder.path} has no result yet: its run goes on with pfes search "
            f"--out {folder.path} --resume"
        )
    answers = _in_words(folder)
    parts = [section("Before and after", _before_after(result))]
    history = folder.chosen_history()
    if history:
        parts.append(section("The search", grid(*_search_charts(history, result))))
    if answers:
        labels = list(answers[0]["zero_shot"])
        parts.append(section("Answers", grid(*(_confusion(answers, labels, n) for n in ANSWERED))))
        parts.append(section("Confidence", paragraph(CONFIDENCE), _confidence(answers)))
        parts.append(section("Sentences that changed their label", *_changed(answers)))
    if result.nearest:
        parts.append(section("The prompt's tokens", paragraph(NEAREST), _nearest(result)))
    parts.append(section("Run", *run_facts(result)))
    model = model_name(result.model, result.config.get("served_name"))
    title = f"{result.task} · {model} · {result.method} · seed {result.seed}"
    low, high = result.intervals["gain"]
    lead = (
        f"{result.metric} {result.zero_shot:.4f} → {result.test:.4f} on {result.test_examples} "
        f"held-out examples ({result.gain:+.4f}; 95 % interval {low:+.4f} to {high:+.4f}), after "
        f"{result.evaluations} function evaluations."
    )
    return page(title, lead, *parts)


CONFIDENCE = (
    "The probability, over the whole vocabulary, of the word that the model answers with: how many "
    "test examples have how much."
)
NEAREST = (
    "The tokens of the vocabulary nearest to each soft token, by cosine. A found prompt need not "
    "be readable: a low cosine means that no token is near."
)


def _in_words(folder: RunFolder) -> list[dict[str, Any]]:
    """Return a run's answers, each label with its verbalizer, if that says more."""
    words = SavedPrompt.load(folder.path).spec.verbalizers
    names = {str(k): str(k) if str(k) == word else f"{k}: {word}" for k, word in words.items()}
    answers = folder.read_answers()
    for answer in answers:
        answer["label"] = names[answer["label"]]
        for version in ANSWERED:
            # a probability that was no number is null there, and never an answer
            answer[version] = {names[label]: p or 0.0 for label, p in answer[version].items()}
    return answers


def _before_after(result: Result) -> str:
    rows = []
    for name, title in VERSIONS.items():
        low, high = result.intervals[name]
        value = getattr(result, name)
        interval = Cell(f"{low:.4f} – {high:.4f}", low, "number")
        rows.append((title, Cell(f"{value:.4f}", value, "number"), interval))
    caption = f"On {result.test_examples} held-out examples"
    return table(caption, ("prompt", result.metric, "95 % interval"), rows)


def _search_charts(history: list[dict[str, Any]], result: Result) -> list[str]:
    kept = [history[i] for i in _thinned(len(history))]
    spent = [line["evaluations"] for line in kept]
    candidates = [
        (line["evaluations"], value)
        for line in kept
        for value in line["losses"]
        if value is not None
    ]
    shown = [candidates[i] for i in _thinned(len(candidates), 5 * POINTS)]
    judged = [line for line in history if line["validation"] is not None]
    looks = [judged[i] for i in _thinned(len(judged))]
    over = "function evaluations"
    cloud = Line("candidates", [x for x, _ in shown], [y for _, y in shown], dots=True)
    best = Line("best so far", spent, [line["best_loss"] for line in kept])
    sigma = Line("σ", spent, [line["sigma"] for line in kept])
    metric = Line(
        f"validation {result.metric}",
        [line["evaluations"] for line in looks],
        [line["validation"]["metric"] for line in looks],
    )
    chosen = Line("selected", [result.selected_at], [result.validation], dots=True)
    return [
        chart("Training loss", over, "loss", [best, cloud]),
        chart("Validation", over, result.metric, [metric, chosen]),
        chart("Step size", over, "σ", [sigma], log=True),
    ]


def _thinned(count: int, most: int = POINTS) -> list[int]:
    """Return evenly spaced places among `count`, both ends included."""
    if count == 0:
        return []
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


def _top(answer: dict[str, float]) -> str:
    """Return the label that a model answers with; the first of equals, as when scoring."""
    return max(answer, key=lambda label: answer[label])


def _confusion(answers: list[dict[str, Any]], labels: list[str], version: str) -> str:
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


def _confidence(answers: list[dict[str, Any]]) -> str:
    most = max(max(answer[version].values()) for answer in answers for version in ANSWERED)
    edges = np.linspace(0, most or 1.0, BINS + 1)
    middles = ((edges[1:] + edges[:-1]) / 2).round(6).tolist()
    lines = []
    for version, title in ANSWERED.items():
        values = [max(answer[version].values()) for answer in answers]
        counts = np.histogram(values, edges)[0]
        lines.append(Line(f"{title} (mean {np.mean(values):.3f})", middles, counts.tolist()))
    return chart("Confidence", "probability of the answer", "test examples", lines, bars=True)


def _changed(answers: list[dict[str, Any]]) -> list[str]:
    """Return how many answers changed for the better and the worse, and which."""
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


def _nearest(result: Result) -> str:
    rows = []
    for place, tokens in enumerate(result.nearest):
        cells = [Cell(f"{token!r} {cosine:.2f}", cosine, "token") for token, cosine in tokens]
        rows.append((Cell(str(place + 1), place + 1), *cells))
    most = max(len(tokens) for tokens in result.nearest)
    head = ("place", *(f"{rank + 1}." for rank in range(most)))
    return table("Nearest tokens and their cosine", head, rows)
