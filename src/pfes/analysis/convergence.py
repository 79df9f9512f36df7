"""Training loss against evaluations and against seconds: the median over seeds."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.runs import Group, read_groups
from pfes.errors import PfesError
from pfes.figures import COLORS, STYLES
from pfes.sheets import Entry, Sheet
from pfes.studies.curves import medians_over_seeds

NAME = "convergence"


@dataclass(frozen=True)
class Course:
    """How one group's loss fell: medians over seeds at the same numbers of evaluations."""

    name: str
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
    histories = [folder.chosen_history() for folder, _ in group.runs]
    if not all(histories):
        return None
    ends, medians = medians_over_seeds(histories, ["seconds", "best_loss"])
    return Course(group.name, len(histories), ends, medians["seconds"], medians["best_loss"])


def _sheet(found: list[Course]) -> Sheet:
    lines = []
    for one in found:
        values = (one.evaluations[-1], one.seconds[-1], one.losses[0], one.losses[-1], one.seeds)
        texts = (f"{values[0]}", f"{values[1]:.1f}", f"{values[2]:.4f}", f"{values[3]:.4f}")
        entries = [Entry(text, value) for text, value in zip(texts, values, strict=False)]
        lines.append((one.name, (*entries, Entry(str(one.seeds), one.seeds))))
    head = ("", "evaluations", "seconds", "first loss", "last loss", "seeds")
    return Sheet("Best training loss so far, median over seeds", head, tuple(lines))


def _words(found: list[Course]) -> Iterator[str]:
    yield "Losses are comparable between rows only where both minimise the same one."


def _draw(found: list[Course], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.0 + 0.12 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, one in enumerate(found):
        style = STYLES[number // len(COLORS) % len(STYLES)]
        color = COLORS[number % len(COLORS)]
        left.plot(one.evaluations, one.losses, style, color=color, lw=1.4, label=one.name)
        right.plot(one.seconds, one.losses, style, color=color, lw=1.4)
    left.set_xlabel("function evaluations")
    right.set_xlabel("seconds")
    left.set_ylabel("best training loss")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=7)
    figure.savefig(path, dpi=200)
