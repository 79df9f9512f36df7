"""Seconds that a function evaluation takes, and the optimizer's share of them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.groups import Group, read_groups
from pfes.errors import PfesError
from pfes.reporting.paper import paper_table
from pfes.reporting.sheets import Entry, Sheet
from pfes.system.colors import BLUE, ORANGE

NAME = "cost"
HEAD = ("", "task", "model", "s/FE", "optimizer (%)", "seeds")


@dataclass(frozen=True)
class Cost:
    """The costs of one group of runs, as means over its seeds."""

    label: str
    task: str
    model: str
    seconds: float  # per function evaluation, the optimizer's ask and tell included
    share: float  # the part of this time that the optimizer takes, 0 to 1
    seeds: int


def cost_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Compare the time that saved runs took; return the paths of the files written."""
    costs = [cost for group in read_groups(paths) if (cost := _measure(group)) is not None]
    if not costs:
        raise PfesError("none of these runs did a search, so there is no cost to show")
    costs.sort(key=lambda cost: (cost.model, cost.task, cost.label))
    artefacts = Artefacts(out, NAME)
    artefacts.write({"runs": [str(path) for path in paths]}, {"groups": [asdict(c) for c in costs]})
    _draw(costs, artefacts.figure)
    return artefacts.tabulate(
        "Cost of a function evaluation", _remarks(costs), list(_sheets(costs))
    )


def _measure(group: Group) -> Cost | None:
    seconds, shares = [], []
    for run in group.runs:
        result = run.result
        optimizer, model = (result.profile.get(part, 0.0) for part in ("optimizer", "model"))
        if result.seconds_per_evaluation is not None and optimizer + model > 0:
            seconds.append(result.seconds_per_evaluation)
            shares.append(optimizer / (optimizer + model))
    if not seconds:
        return None
    return Cost(*group.name, mean(seconds), mean(shares), len(seconds))


def _sheets(costs: list[Cost]) -> Iterator[Sheet]:
    lines = []
    for cost in costs:
        entries = (
            Entry(cost.task, None),
            Entry(cost.model, None),
            Entry(f"{cost.seconds:.4f}", cost.seconds),
            Entry(f"{100 * cost.share:.2f}", cost.share),
            Entry(str(cost.seeds), cost.seeds),
        )
        lines.append((cost.label, entries))
    yield Sheet("Saved runs, means over seeds", HEAD, tuple(lines))
    paper = paper_table("main")
    assert paper is not None
    paper_lines = [(row, (Entry(f"{value:.4f}", value),)) for row, value in paper.seconds.items()]
    yield Sheet(f"The paper's figures: {paper.model}", ("", "s/FE"), tuple(paper_lines))


def _remarks(costs: list[Cost]) -> Iterator[str]:
    yield (
        "s/FE is the wall-clock time of asking, evaluating and telling, by evaluations; validation "
        "and test are not in it. It compares only runs that had the same machine to themselves; "
        "the optimizer's share of that time compares always."
    )
    most = max(costs, key=lambda cost: cost.share)
    yield (
        f"The optimizer takes {100 * most.share:.2f} % at most ({most.label} on {most.task}, "
        f"{most.model}): the rest is the model's."
    )


def _draw(costs: list[Cost], path: Path) -> None:
    """Draw seconds and share side by side, with a row for each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.8 + 0.24 * len(costs)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    rows = range(len(costs))
    left.barh(rows, [cost.seconds for cost in costs], color=BLUE, height=0.6)
    right.plot([100 * cost.share for cost in costs], rows, "D", color=ORANGE, ms=5)
    left.set_xlabel("seconds per FE")
    right.set_xlabel("optimizer's share (%, log)")
    right.set_xscale("log")
    right.xaxis.set_major_formatter("{x:g}")
    for axis in (left, right):
        axis.grid(axis="x", color="0.9", lw=0.6)
        axis.set_axisbelow(True)
        for row in range(1, len(costs)):  # separate models and tasks by a line
            above, below = costs[row - 1], costs[row]
            if (above.model, above.task) != (below.model, below.task):
                axis.axhline(row - 0.5, color="0.5", lw=0.8)
    names = [f"{cost.label} · {cost.task} · {cost.model}" for cost in costs]
    left.set_yticks(rows, names, fontsize=7)
    left.set_ylim(len(costs) - 0.5, -0.5)
    figure.savefig(path, dpi=200)
