"""What the confidence regulariser does to a model's answers: metric, probability, rank."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.runs import Group, read_groups
from pfes.figures import BLUE, ORANGE
from pfes.methods import get_method
from pfes.sheets import MISSING, Entry, Sheet, figure_text
from pfes.studies.paper import paper_figures

NAME = "confidence"
HEAD = ("", "task", "model", "metric (%)", "P", "R", "seeds")


@dataclass(frozen=True)
class Confidence:
    """Means over the seeds of a group."""

    label: str
    task: str
    model: str
    regularized: bool
    metric: float  # in percent
    deviation: float | None
    probability: float  # P: of the predicted word, over the vocabulary
    rank: float | None  # R: of the predicted word; None where a service does not show it
    seeds: int


def confidence_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Compare saved runs; return the files."""
    found = [_measure(group) for group in read_groups(paths)]
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
        group.task,
        group.model,
        get_method(results[0].method).regularized,
        mean(tests),
        stdev(tests) if len(tests) > 1 else None,
        mean(result.probability for result in results),
        mean(ranks) if len(ranks) == len(results) else None,
        len(results),
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
    paper = paper_figures(NAME)
    assert paper is not None
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
    for task, model in dict.fromkeys((one.task, one.model) for one in found):
        own = [one for one in found if (one.task, one.model) == (task, model)]
        plain = [one.probability for one in own if not one.regularized]
        tuned = [one.probability for one in own if one.regularized]
        if plain and tuned:
            factor = mean(tuned) / mean(plain)
            yield f"{task}, {model}: with the regulariser P is {factor:.1f} times as high."


def _draw(found: list[Confidence], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.9 + 0.28 * len(found)), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    names = [f"{one.label} · {one.task} · {one.model}" for one in found]
    colors = [ORANGE if one.regularized else BLUE for one in found]
    errors = [one.deviation or 0 for one in found]
    left.barh(names, [one.metric for one in found], xerr=errors, color=colors)
    left.set_xlabel("metric (%)")
    middle.barh(names, [one.probability for one in found], color=colors)
    middle.set_xlabel("P")
    right.barh(names, [one.rank or 0 for one in found], color=colors)
    right.set_xlabel("R")
    left.invert_yaxis()
    left.tick_params(axis="y", labelsize=7)
    figure.savefig(path, dpi=200)
