"""What a function evaluation costs: seconds, and the optimizer's share of them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.runs import Group, read_groups
from pfes.errors import PfesError
from pfes.figures import BLUE, ORANGE
from pfes.sheets import Entry, Sheet
from pfes.studies.paper import paper_table

NAME = "cost"
HEAD = ("", "task", "model", "s/FE", "optimizer (%)", "seeds")


@dataclass(frozen=True)
class Cost:
    """Means over the seeds of a group."""

    label: str
    task: str
    model: str
    seconds: float  # of a function evaluation: asking, evaluating and telling
    share: float  # of the optimizer in asking, evaluating and telling
    seeds: int


def cost_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Compare what saved runs took; return the files."""
    found = [cost for group in read_groups(paths) if (cost := _measure(group)) is not None]
    if not found:
        raise PfesError("none of the runs searched: there is no cost to show")
    found.sort(key=lambda one: (one.model, one.task, one.label))
    artefacts = Artefacts(out, NAME)
    artefacts.write({"runs": [str(path) for path in paths]}, {"groups": [asdict(f) for f in found]})
    _draw(found, artefacts.figure)
    return artefacts.tabulate("Cost of a function evaluation", _words(found), list(_sheets(found)))


def _measure(group: Group) -> Cost | None:
    seconds, shares = [], []
    for _, result in group.runs:
        own, model = (result.profile.get(part, 0.0) for part in ("optimizer", "model"))
        if result.seconds_per_evaluation is not None and own + model > 0:
            seconds.append(result.seconds_per_evaluation)
            shares.append(own / (own + model))
    if not seconds:
        return None
    kind = (group.label, group.task, group.model)
    return Cost(*kind, mean(seconds), mean(shares), len(seconds))


def _sheets(found: list[Cost]) -> Iterator[Sheet]:
    lines = []
    for one in found:
        entries = (
            Entry(one.task, None),
            Entry(one.model, None),
            Entry(f"{one.seconds:.4f}", one.seconds),
            Entry(f"{100 * one.share:.2f}", one.share),
            Entry(str(one.seeds), one.seeds),
        )
        lines.append((one.label, entries))
    yield Sheet("Saved runs, means over seeds", HEAD, tuple(lines))
    paper = paper_table("main")
    assert paper is not None
    theirs = [(row, (Entry(f"{value:.4f}", value),)) for row, value in paper.seconds.items()]
    yield Sheet(f"The paper's figures: {paper.model}", ("", "s/FE"), tuple(theirs))


def _words(found: list[Cost]) -> Iterator[str]:
    yield (
        "s/FE is the wall-clock time of asking, evaluating and telling, by evaluations; validation "
        "and test are not in it. It compares only runs that had the same machine to themselves; "
        "the optimizer's share of that time compares always."
    )
    most = max(found, key=lambda one: one.share)
    yield (
        f"The optimizer takes {100 * most.share:.2f} % at most ({most.label} on {most.task}, "
        f"{most.model}): the rest is the model's."
    )


def _draw(found: list[Cost], path: Path) -> None:
    """Draw both figures, a line for each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.8 + 0.24 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    rows = range(len(found))
    left.barh(rows, [one.seconds for one in found], color=BLUE, height=0.6)
    right.plot([100 * one.share for one in found], rows, "D", color=ORANGE, ms=5)
    left.set_xlabel("seconds per FE")
    right.set_xlabel("optimizer's share (%, log)")
    right.set_xscale("log")
    right.xaxis.set_major_formatter("{x:g}")
    for place in (left, right):
        place.grid(axis="x", color="0.9", lw=0.6)
        place.set_axisbelow(True)
        for row in range(1, len(found)):  # a line between models and tasks
            if (found[row].model, found[row].task) != (found[row - 1].model, found[row - 1].task):
                place.axhline(row - 0.5, color="0.5", lw=0.8)
    left.set_yticks(rows, [f"{one.label} · {one.task} · {one.model}" for one in found], fontsize=7)
    left.set_ylim(len(found) - 0.5, -0.5)
    figure.savefig(path, dpi=200)
