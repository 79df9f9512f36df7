"""Training loss over evaluations and over seconds, as the median over seeds."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.groups import Group, read_groups
from pfes.errors import PfesError
from pfes.reporting.curves import ENTROPY, loss_name, medians_over_seeds, with_entropies
from pfes.reporting.sheets import Entry, Sheet
from pfes.system.colors import COLORS, STYLES

NAME = "convergence"


@dataclass(frozen=True)
class LossCurve:
    """The loss of one group of runs: medians over its seeds at the same evaluation counts.

    It is the cross-entropy of the best candidate so far, whatever the runs minimise.
    """

    label: str
    task: str
    model: str
    loss: str
    seeds: int
    evaluations: list[int]
    seconds: list[float]
    losses: list[float]


def convergence_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Draw the training loss of saved runs; return the paths of the files written."""
    curves = [curve for group in read_groups(paths) if (curve := _loss_curve(group)) is not None]
    if not curves:
        raise PfesError("none of these runs did a search, so there is no loss to show")
    artefacts = Artefacts(out, NAME)
    artefacts.write(
        {"runs": [str(path) for path in paths]}, {"groups": [asdict(c) for c in curves]}
    )
    _draw(curves, artefacts.figure)
    return artefacts.tabulate("Convergence", _remarks(curves), [_sheet(curves)])


def _loss_curve(group: Group) -> LossCurve | None:
    for run in group.runs:
        if run.result.evaluations and not run.files.history.exists():
            raise PfesError(f"{run.path} has no {run.files.history.name}: no losses to draw")
    histories = [with_entropies(run) for run in group.runs]
    if not all(histories):
        return None
    ends, medians = medians_over_seeds(histories, ["seconds", ENTROPY])
    loss = loss_name(group.settings.get("reading", "plain"))
    curves = (ends, medians["seconds"], medians[ENTROPY])
    return LossCurve(*group.name, loss, len(histories), *curves)


def _sheet(curves: list[LossCurve]) -> Sheet:
    lines = []
    for curve in curves:
        ends = (curve.evaluations[-1], curve.seconds[-1], curve.losses[0], curve.losses[-1])
        values = (*ends, curve.seeds)
        formats = ("{}", "{:.1f}", "{:.4f}", "{:.4f}", "{}")
        texts = [form.format(value) for form, value in zip(formats, values, strict=True)]
        entries = [Entry(text, value) for text, value in zip(texts, values, strict=True)]
        names = (curve.task, curve.model, curve.loss)
        lines.append((curve.label, (*(Entry(name, None) for name in names), *entries)))
    head = ("", "task", "model", "loss", "evaluations", "seconds", "first", "last", "seeds")
    return Sheet(
        "Training loss of the best candidate so far, median over seeds", head, tuple(lines)
    )


def _remarks(curves: list[LossCurve]) -> Iterator[str]:
    yield (
        "The loss is the cross-entropy of the candidate that is best by what its search minimises, "
        "so it may rise where that is something else."
    )


def _draw(curves: list[LossCurve], path: Path) -> None:
    """Draw a row of plots for each model, task and loss, with a line for each method."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    rows = list(dict.fromkeys((curve.task, curve.model, curve.loss) for curve in curves))
    labels = list(dict.fromkeys(curve.label for curve in curves))
    height = 0.6 + 2.2 * len(rows) + 0.12 * len(labels)
    figure = Figure(figsize=(7.0, height), layout="constrained")
    axes = figure.subplots(len(rows), 2, sharey="row", squeeze=False)
    lines = {}
    for curve in curves:
        number = labels.index(curve.label)
        style = STYLES[number // len(COLORS) % len(STYLES)]
        color = COLORS[number % len(COLORS)]
        left, right = axes[rows.index((curve.task, curve.model, curve.loss))]
        [line] = left.plot(curve.evaluations, curve.losses, style, color=color, lw=1.4)
        right.plot(curve.seconds, curve.losses, style, color=color, lw=1.4)
        lines[curve.label] = line
    for (left, right), (task, model, loss) in zip(axes, rows, strict=True):
        left.set_title(f"{task} · {model}", fontsize=9)
        left.set_ylabel(f"training {loss} (log)", fontsize=8)
        left.set_yscale("log")
        left.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        left.yaxis.set_major_formatter("{x:g}")
        left.yaxis.set_minor_locator(NullLocator())
        left.set_xlabel("function evaluations")
        right.set_xlabel("seconds")
    figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    figure.savefig(path, dpi=200)
