"""Results as a person reads them."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pfes.runs.result import Result

ROWS = {
    "zero_shot": "zero-shot (template alone)",
    "initial": "initial prompt",
    "test": "found prompt",
}
DIFFERENCES = {"gain": "found − zero-shot", "added": "found − initial prompt"}


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


def _reading(result: Result) -> Iterator[str]:
    """Yield how the answers were read, and the words that speak for each label most."""
    reading = result.reading
    if reading.get("rung", "plain") == "plain":
        return
    chosen = ""
    if reading["cross_validation"]:
        losses = reading["cross_validation"]
        chosen = f"; cross-validated loss {losses.get('plain', max(losses.values())):.3f} plainly"
        chosen += f", {min(losses.values()):.3f} at best"
    yield f"Reading: {reading['rung']}, slope {reading['slope']:.2f}{chosen}"
    for label, words in reading["telling"].items():
        yield f"  {label}: {', '.join(repr(word.strip() or word) for word in words[:6])}"


def _quality(result: Result, title: str) -> Table:
    """Return the metric before and after, with intervals."""
    table = Table(title=Text(title))
    table.add_column(f"on {result.test_examples} held-out examples")
    table.add_column(result.metric, justify="right")
    table.add_column("95 % interval", justify="right")
    for key, label in ROWS.items():
        low, high = result.intervals[key]
        style = "bold" if key == "test" else None
        table.add_row(label, f"{getattr(result, key):.4f}", f"{low:.4f} – {high:.4f}", style=style)
    for key, label in DIFFERENCES.items():
        if key in result.intervals:
            low, high = result.intervals[key]
            table.add_row(label, f"{getattr(result, key):+.4f}", f"{low:+.4f} – {high:+.4f}")
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
