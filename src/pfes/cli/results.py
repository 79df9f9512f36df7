"""Results as a person reads them."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pfes.runs.result import Result
from pfes.runs.versions import FREE_NOTE, figure, kept_sentence, versions
from pfes.searches.starts import StartRecord

DIFFERENCES = {
    "gain": "found − template alone",
    "added": "found − initial prompt",
    "over_free": "found − the best that is free (*)",
}


def show_result(result: Result, folder: Path, as_json: bool) -> None:
    """Print a result: a table, or the JSON that is in `result.json`."""
    if as_json:
        print(json.dumps(result.model_dump(mode="json")))
        return
    console = Console()
    title = f"{result.task} · {result.model} · {result.method} · seed {result.seed}"
    if result.test_examples:
        console.print(_quality(result, title))
    else:
        console.print(Text(f"{title}: {result.metric} {result.validation:.4f} on validation"))
        console.print("No examples were held out to test it on.")
    sure = ""
    if result.test_examples:
        rank = "" if result.rank is None else f", mean rank {result.rank:.1f}"
        sure = f"; probability of the predicted word {result.probability:.3f}{rank}"
    spent = "no search"
    if result.seconds_per_evaluation is not None:
        spent = f"{result.evaluations} evaluations at {result.seconds_per_evaluation:.2f} s"
    console.print(
        f"{spent}; training loss {result.initial_train_loss:.4f} → {result.train_loss:.4f}{sure}",
        highlight=False,
    )
    if result.start is not None and result.start.evaluations:
        console.print(_start(result.start), highlight=False, soft_wrap=True)
    if result.stopped is not None:
        console.print(f"Ended before the budget: {result.stopped}.", highlight=False, markup=False)
    if result.kept_start:
        console.print(kept_sentence(result), highlight=False, soft_wrap=True)
    for line in _reading(result):
        console.print(line, highlight=False, markup=False)
    if result.beta_trials:
        tried = ", ".join(
            f"{trial.beta:g} ({trial.evaluations} evaluations, validation {trial.validation:.3f})"
            for trial in result.beta_trials
        )
        console.print(f"β = {result.beta:g}, of {tried}", highlight=False)
    if result.text is not None:
        console.print(f"Prompt: {result.text!r}", highlight=False, markup=False)
    if result.intervals["gain"][1] < 0:  # never true of NaN, where there was no test
        console.print(
            "The template alone is better on these examples: try another --init, or more --budget.",
            highlight=False,
        )
    console.print(f"Run folder: {folder}", highlight=False, soft_wrap=True, markup=False)


def _start(start: StartRecord) -> str:
    """Say where the search began: what stands in front of the texts, and the step size."""
    tried = len({trial.name for trial in start.trials})
    among = f" (the best of {tried} starts by cross-validated loss)" if tried else ""
    step = "" if start.sigma0 is None else f"; step size {start.sigma0:.3g}"
    return f"In front of every text: {start.name}{among}{step}"


def _reading(result: Result) -> Iterator[str]:
    """Yield how the answers were read, and the words that speak for each label most."""
    reading = result.reading
    if reading.get("rung", "plain") == "plain":
        return
    shares: dict[str, float] = {}  # words of all strengths together
    for name, share in reading["shares"].items():
        kind = name.partition(" ")[0]
        shares[kind] = shares.get(kind, 0.0) + share
    parts = [f"{kind} {share:.0%}" for kind, share in shares.items() if share >= 0.01]
    yield (
        f"Reading: {', '.join(parts)}; slope {reading['slope']:.2f}; cross-validated loss "
        f"{reading['plain_loss']:.3f} plainly → {reading['loss']:.3f}"
    )
    telling = list(reading["telling"].items())
    for label, words in telling[:10]:
        yield f"  {label}: {', '.join(repr(word.strip() or word) for word in words[:6])}"
    if len(telling) > 10:
        more = len(telling) - 10
        labels = "label" if more == 1 else "labels"
        yield f"  … and {more} more {labels}: see report.html, which pfes report writes"


def _quality(result: Result, title: str) -> Table:
    """Return the metric of what is free, of the start and of what was found, with intervals."""
    table = Table(title=Text(title), caption=FREE_NOTE if result.free else None)
    table.add_column(f"on {result.test_examples} held-out examples")
    for column in (result.metric, "95 % interval", "AUC"):
        table.add_column(column, justify="right")
    for row in versions(result):
        low, high = row.interval
        cells = (f"{row.value:.4f}", f"{low:.4f} – {high:.4f}", figure(row.auc))
        table.add_row(Text(row.title), *cells, style="bold" if row.found else None)
    table.add_section()
    for key, label in DIFFERENCES.items():
        if key in result.intervals and not (key == "added" and result.began_free):
            low, high = result.intervals[key]
            table.add_row(label, f"{getattr(result, key):+.4f}", f"{low:+.4f} – {high:+.4f}", "")
    return table


PARTS = {
    "model": "evaluating candidates",
    "optimizer": "asking and telling the optimizer",
    "validation": "validating solutions",
    "testing": "testing, at the end",
    "loading": "loading the model, measuring its batch size",
    "data": "reading the task, preparing the search",
    "disk": "writing history and checkpoints",
}


def show_profile(result: Result) -> None:
    """Print where the time of a run went, on standard error."""
    table = Table(title="Where the time went", title_justify="left")
    for column in ("part", "seconds", "share"):
        table.add_column(column, justify="left" if column == "part" else "right")
    total = sum(result.profile.values())
    for part, seconds in sorted(result.profile.items(), key=lambda item: -item[1]):
        table.add_row(PARTS[part], f"{seconds:.2f}", f"{seconds / total:.1%}")
    Console(stderr=True).print(table)
