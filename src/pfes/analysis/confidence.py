"""What the confidence regulariser does to a model's answers: metric, probability, rank."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.runs import Group, read_groups
from pfes.figures import BLUE, ORANGE
from pfes.methods import get_method
from pfes.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.paper import paper_analysis

NAME = "confidence"
HEAD = ("", "task", "model", "metric (%)", "P", "R", "seeds")


@dataclass(frozen=True)
class Confidence:
    """Means over the seeds of a group."""

    label: str
    method: str
    task: str
    model: str
    regularized: bool
    metric: float  # in percent
    deviation: float | None
    probability: float  # P: of the predicted word, over the vocabulary
    rank: float | None  # R: of the predicted word; None where a service does not show it
    seeds: int
    settings: dict[str, Any]  # all but method and β


def confidence_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Compare saved runs, those of one model and task side by side; return the files."""
    found = [_measure(group) for group in read_groups(paths)]
    found.sort(key=lambda one: (one.model, one.task, one.regularized, one.label))
    artefacts = Artefacts(out, NAME)
    artefacts.write({"runs": [str(path) for path in paths]}, {"groups": [asdict(f) for f in found]})
    _draw(found, artefacts.figure)
    return artefacts.tabulate("Confidence", _words(found), list(_sheets(found)))


def _measure(group: Group) -> Confidence:
    results = [result for _, result in group.runs]
    tests = [100 * result.test for result in results]
    ranks = [result.rank for result in results if result.rank is not None]
    return Confidence(
        group.label,
        results[0].method,
        group.task,
        group.model,
        get_method(results[0].method).regularized,
        mean(tests),
        stdev(tests) if len(tests) > 1 else None,
        mean(result.probability for result in results),
        mean(ranks) if len(ranks) == len(results) else None,
        len(results),
        group.settings,
    )


def _sheets(found: list[Confidence]) -> Iterator[Sheet]:
    lines = []
    for one in found:
        rank = MISSING if one.rank is None else f"{one.rank:.2f}"
        entries = (
            Entry(one.task, None),
            Entry(one.model, None),
            Entry(figure_text(one.metric, one.deviation), one.metric),
            Entry(f"{one.probability:.4f}", one.probability),
            Entry(rank, one.rank),
            Entry(str(one.seeds), one.seeds),
        )
        lines.append((one.label, entries))
    yield Sheet("Saved runs, means over seeds", HEAD, tuple(lines))
    paper = paper_analysis(NAME)
    tasks = [t for t in dict.fromkeys(one.task for one in found) if t in paper["rows"]]
    theirs = []
    for task in tasks:
        for method, figures in paper["rows"][task].items():
            entries = (
                Entry(task, None),
                Entry(paper["model"], None),
                Entry(figure_text(*figures["metric"]), figures["metric"][0]),
                Entry(f"{figures['probability']:.4f}", figures["probability"]),
                Entry(f"{figures['rank']:.2f}", figures["rank"]),
                Entry("5", 5),
            )
            theirs.append((method, entries))
    if theirs:
        caption = f"The paper's figures: {paper['model']}, {paper['budget']} evaluations"
        yield Sheet(caption, HEAD, tuple(theirs))


def _words(found: list[Confidence]) -> Iterator[str]:
    yield (
        "P is the mean probability, over the whole vocabulary, of the word that is answered; R its "
        "mean rank there (1 is the top)."
    )
    if any(one.rank is None for one in found):
        yield "A model behind a service does not show ranks: R is missing there."
    for one in found:
        kind = (one.model, one.task, one.method.removesuffix("-cr"))
        plain = [c for c in found if (c.model, c.task, c.method) == kind and not c.regularized]
        if one.regularized and plain:
            other = min(plain, key=lambda c: len(_differing(one, c)))
            factor = one.probability / other.probability
            beside = "".join(
                f"; {name} is {one.settings.get(name)} here and {other.settings.get(name)} there"
                for name in _differing(one, other)
            )
            yield (
                f"{one.task}, {one.model}: P of {one.label} is {factor:.1f} times that of "
                f"{other.label}{beside}."
            )


def _differing(one: Confidence, other: Confidence) -> list[str]:
    """Return the settings that two groups differ in beside method and β."""
    names = one.settings | other.settings
    return [name for name in names if one.settings.get(name) != other.settings.get(name)]


def _draw(found: list[Confidence], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 1.1 + 0.24 * len(found)), layout="constrained")
    places = figure.subplots(1, 3, sharey=True)
    looks = {False: (BLUE, "o", "without"), True: (ORANGE, "D", "with the regulariser")}
    for row, one in enumerate(found):
        color, marker, label = looks[one.regularized]
        style: dict[str, Any] = {"color": color, "ms": 5, "lw": 1.3}
        values = (one.metric, one.probability, one.rank)
        for place, value in zip(places, values, strict=True):
            if value is not None:
                place.plot(value, row, marker, label=label, **style)
        if one.deviation is not None:
            reach = [one.metric - one.deviation, one.metric + one.deviation]
            places[0].plot(reach, [row, row], "-", **style)
    for place, name in zip(places, ("metric (%)", "P (log)", "R (log)"), strict=True):
        place.set_xlabel(name)
        place.grid(axis="both", color="0.9", lw=0.6)
        for row in range(1, len(found)):  # a line between models and tasks
            if (found[row].model, found[row].task) != (found[row - 1].model, found[row - 1].task):
                place.axhline(row - 0.5, color="0.5", lw=0.8)
    for place in places[1:]:
        place.set_xscale("log")
    names = [f"{one.label} · {one.task} · {one.model}" for one in found]
    places[0].set_yticks(range(len(found)), names, fontsize=7)
    places[0].set_ylim(len(found) - 0.5, -0.5)
    handles, labels = places[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(
        once.values(), once, loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )
    figure.savefig(path, dpi=200)
