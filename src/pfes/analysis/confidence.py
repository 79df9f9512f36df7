"""How the confidence regulariser changes the metric, probability and rank of the answers."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.groups import Group, read_groups
from pfes.methods import get_method
from pfes.reporting.paper import paper_analysis
from pfes.reporting.sheets import MISSING, Entry, Sheet, figure_text
from pfes.system.colors import BLUE, ORANGE

NAME = "confidence"
HEAD = ("", "task", "model", "metric (%)", "P", "R", "seeds")


@dataclass(frozen=True)
class Confidence:
    """The figures of one group of runs, as means over its seeds."""

    label: str
    method: str
    task: str
    model: str
    regularized: bool
    metric: float  # in percent
    deviation: float | None
    probability: float  # P: of the predicted word, among the whole vocabulary
    rank: float | None  # R: of the predicted word; None for a served model, which hides it
    seeds: int
    settings: dict[str, Any]  # all except method and β


def confidence_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Compare saved runs, sorted by model and task; return the paths of the files written."""
    groups = [_measure(runs) for runs in read_groups(paths)]
    groups.sort(key=lambda group: (group.model, group.task, group.regularized, group.label))
    artefacts = Artefacts(out, NAME)
    artefacts.write(
        {"runs": [str(path) for path in paths]}, {"groups": [asdict(g) for g in groups]}
    )
    _draw(groups, artefacts.figure)
    return artefacts.tabulate("Confidence", _remarks(groups), list(_sheets(groups)))


def _measure(group: Group) -> Confidence:
    frame, method = group.frame, str(group.frame["method"].iloc[0])
    tests = [100 * value for value in frame["test"]]
    return Confidence(
        group.label,
        method,
        group.task,
        group.model,
        get_method(method).regularized,
        mean(tests),
        stdev(tests) if len(tests) > 1 else None,
        mean(frame["probability"]),
        None if frame["rank"].isna().any() else mean(frame["rank"]),
        len(frame),
        group.settings,
    )


def _sheets(groups: list[Confidence]) -> Iterator[Sheet]:
    lines = []
    for group in groups:
        rank = MISSING if group.rank is None else f"{group.rank:.2f}"
        entries = (
            Entry(group.task, None),
            Entry(group.model, None),
            Entry(figure_text(group.metric, group.deviation), group.metric),
            Entry(f"{group.probability:.4f}", group.probability),
            Entry(rank, group.rank),
            Entry(str(group.seeds), group.seeds),
        )
        lines.append((group.label, entries))
    yield Sheet("Saved runs, means over seeds", HEAD, tuple(lines))
    paper = paper_analysis(NAME)
    tasks = [t for t in dict.fromkeys(group.task for group in groups) if t in paper["rows"]]
    paper_lines = []
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
            paper_lines.append((method, entries))
    if paper_lines:
        caption = f"The paper's figures: {paper['model']}, {paper['budget']} evaluations"
        yield Sheet(caption, HEAD, tuple(paper_lines))


def _remarks(groups: list[Confidence]) -> Iterator[str]:
    yield (
        "P is the mean probability, over the whole vocabulary, of the word that is answered; R its "
        "mean rank there (1 is the top)."
    )
    if any(group.rank is None for group in groups):
        yield "A model behind a service does not show ranks: R is missing there."
    for group in groups:
        plain_method = group.method.removesuffix("-cr")
        plain = [
            g
            for g in groups
            if (g.model, g.task, g.method) == (group.model, group.task, plain_method)
            and not g.regularized
        ]
        if group.regularized and plain:
            other = min(plain, key=lambda g: len(_differing(group, g)))
            factor = group.probability / other.probability
            differences = "".join(
                f"; {name} is {group.settings.get(name)} here and {other.settings.get(name)} there"
                for name in _differing(group, other)
            )
            yield (
                f"{group.task}, {group.model}: P of {group.label} is {factor:.1f} times that of "
                f"{other.label}{differences}."
            )


def _differing(group: Confidence, other: Confidence) -> list[str]:
    """Return the names of the settings, except method and β, in which two groups differ."""
    names = group.settings | other.settings
    return [name for name in names if group.settings.get(name) != other.settings.get(name)]


def _draw(groups: list[Confidence], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 1.1 + 0.24 * len(groups)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    looks = {False: (BLUE, "o", "without"), True: (ORANGE, "D", "with the regulariser")}
    for row, group in enumerate(groups):
        color, marker, label = looks[group.regularized]
        style: dict[str, Any] = {"color": color, "ms": 5, "lw": 1.3}
        values = (group.metric, group.probability, group.rank)
        for axis, value in zip(axes, values, strict=True):
            if value is not None:
                axis.plot(value, row, marker, label=label, **style)
        if group.deviation is not None:
            ends = [group.metric - group.deviation, group.metric + group.deviation]
            axes[0].plot(ends, [row, row], "-", **style)
    for axis, name in zip(axes, ("metric (%)", "P (log)", "R (log)"), strict=True):
        axis.set_xlabel(name)
        axis.grid(axis="both", color="0.9", lw=0.6)
        for row in range(1, len(groups)):  # separate models and tasks by a line
            above, below = groups[row - 1], groups[row]
            if (above.model, above.task) != (below.model, below.task):
                axis.axhline(row - 0.5, color="0.5", lw=0.8)
    for axis in axes[1:]:
        axis.set_xscale("log")
    names = [f"{group.label} · {group.task} · {group.model}" for group in groups]
    axes[0].set_yticks(range(len(groups)), names, fontsize=7)
    axes[0].set_ylim(len(groups) - 0.5, -0.5)
    handles, labels = axes[0].get_legend_handles_labels()
    legend = dict(zip(labels, handles, strict=True))
    figure.legend(
        legend.values(), legend, loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )
    figure.savefig(path, dpi=200)
