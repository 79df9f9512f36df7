"""Training loss against evaluations and against seconds: the median over seeds."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.runs import Group, read_groups
from pfes.errors import PfesError
from pfes.figures import COLORS, STYLES
from pfes.sheets import Entry, Sheet
from pfes.studies.curves import medians_over_seeds, with_losses

NAME = "convergence"


@dataclass(frozen=True)
class Course:
    """How one group's loss fell: medians over seeds at the same numbers of evaluations."""

    label: str
    task: str
    model: str
    seeds: int
    evaluations: list[int]
    seconds: list[float]
    losses: list[float]


def convergence_analysis(paths: list[Path], out: Path) -> list[Path]:
    """Draw saved runs; return the files."""
    found = [course for group in read_groups(paths) if (course := _course(group)) is not None]
    if not found:
        raise PfesError("none of the runs searched: there is no loss to show")
    artefacts = Artefacts(out, NAME)
    artefacts.write({"runs": [str(path) for path in paths]}, {"groups": [asdict(f) for f in found]})
    _draw(found, artefacts.figure)
    return artefacts.tabulate("Convergence", _words(found), [_sheet(found)])


def _course(group: Group) -> Course | None:
    for folder, result in group.runs:
        if result.evaluations and not folder.history.exists():
            raise PfesError(f"{folder.path} has no {folder.history.name}: its course is not known")
    histories = [with_losses(folder.chosen_history()) for folder, _ in group.runs]
    if not all(histories):
        return None
    ends, medians = medians_over_seeds(histories, ["seconds", "best_loss"])
    kind = (group.label, group.task, group.model)
    return Course(*kind, len(histories), ends, medians["seconds"], medians["best_loss"])


def _sheet(found: list[Course]) -> Sheet:
    lines = []
    for one in found:
        values = (one.evaluations[-1], one.seconds[-1], one.losses[0], one.losses[-1], one.seeds)
        formats = ("{}", "{:.1f}", "{:.4f}", "{:.4f}", "{}")
        texts = [form.format(value) for form, value in zip(formats, values, strict=True)]
        entries = [Entry(text, value) for text, value in zip(texts, values, strict=True)]
        lines.append((one.label, (Entry(one.task, None), Entry(one.model, None), *entries)))
    head = ("", "task", "model", "evaluations", "seconds", "first loss", "last loss", "seeds")
    return Sheet("Best training loss so far, median over seeds", head, tuple(lines))


def _words(found: list[Course]) -> Iterator[str]:
    yield "Losses are comparable between rows only where both minimise the same one."


def _draw(found: list[Course], path: Path) -> None:
    """Draw a row for each model and task, a line for each method."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    rows = list(dict.fromkeys((one.task, one.model) for one in found))
    labels = list(dict.fromkeys(one.label for one in found))
    height = 0.6 + 2.2 * len(rows) + 0.12 * len(labels)
    figure = Figure(figsize=(7.0, height), layout="constrained")
    places = figure.subplots(len(rows), 2, sharey="row", squeeze=False)
    lines = {}
    for one in found:
        number = labels.index(one.label)
        style = STYLES[number // len(COLORS) % len(STYLES)]
        color = COLORS[number % len(COLORS)]
        left, right = places[rows.index((one.task, one.model))]
        [line] = left.plot(one.evaluations, one.losses, style, color=color, lw=1.4)
        right.plot(one.seconds, one.losses, style, color=color, lw=1.4)
        lines[one.label] = line
    for (left, right), (task, model) in zip(places, rows, strict=True):
        left.set_title(f"{task} · {model}", fontsize=9)
        left.set_ylabel("best training loss (log)")
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
