"""The intrinsic dimension of prompt search: of the gradients at random prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.dimension import Estimate, estimates, gaussian_estimates, noise_dimensions
from pfes.analysis.gradients import GradientFile, collect_gradients
from pfes.analysis.neighbours import Standard, nearest
from pfes.assemble import load_run_task, open_model
from pfes.config import RunConfig
from pfes.errors import PfesError
from pfes.figures import BLUE, COLORS, STYLES
from pfes.models.local import LocalModel
from pfes.objective import encode_for
from pfes.result import Stage
from pfes.sheets import Entry, Sheet, figure_text

NAME = "intrinsic-dimension"
MODEL_SETTINGS = ("model", "task", "seed", "shots", "dtype")  # that the numbers depend on
AS_NOISE = "as_noise"  # dimensions of noise that gives the same estimates
CEILING = 0.9  # part of the Gaussian estimate from which on a cloud is not told from noise


@dataclass(frozen=True)
class Grid:
    """What is estimated."""

    lengths: Sequence[int]
    neighbours: Sequence[int]
    samples: int
    standard: Standard = "coordinate"

    def check(self) -> None:
        """Find what cannot be estimated before hours are spent."""
        if min(self.neighbours) < 2:
            raise PfesError(f"--neighbours: at least 2, not {min(self.neighbours)}")
        if self.samples <= max(self.neighbours) + 1:
            raise PfesError(
                f"--samples {self.samples}: {max(self.neighbours)} neighbours need more points"
            )


def intrinsic_dimension_analysis(
    config: RunConfig, grid: Grid, out: Path, keep: bool = False
) -> Iterator[Stage | list[Path]]:
    """Estimate for every prompt length and number of neighbours; yield stages, and the files last.

    Lengths that are finished stay; gradients go on where they were, and are deleted when used
    unless `keep` says otherwise.
    """
    grid.check()
    artefacts = Artefacts(out, NAME)
    settings = {name: getattr(config, name) for name in MODEL_SETTINGS} | asdict(grid)
    del settings["lengths"]  # more may be asked for later
    content = artefacts.read(settings)
    found: dict[str, Any] = content.get("lengths", {})
    missing = [length for length in grid.lengths if str(length) not in found]
    if missing:
        yield Stage("loading model")
        task = load_run_task(config)
        model = open_model(config, task.spec)
        if not isinstance(model, LocalModel):
            raise PfesError("the intrinsic dimension needs gradients: a local model, not a service")
        artefacts.write(settings, {"lengths": found})  # says whose the gradients beside it are
        for length in missing:
            batch = encode_for(model, task.spec, task.train, length)
            file = GradientFile(out / f"gradients-{length}.npy", grid.samples, length * model.width)
            for done in collect_gradients(model, batch, length, config.seed, file):
                yield Stage(f"gradients, l = {length}", done, grid.samples, "samples")
            yield Stage(f"neighbours, l = {length}")
            found[str(length)] = _estimate(file, grid, config.seed)
            artefacts.write(settings, {"lengths": found})
            if not keep:
                file.delete()
    shown = {length: found[str(length)] for length in sorted(grid.lengths)}
    for length, figures in shown.items():
        if AS_NOISE not in figures:
            yield Stage(f"noise that gives the same, l = {length}")
            figures[AS_NOISE] = _as_noise(figures, grid, config.seed)
            artefacts.write(settings, {"lengths": found})
    draw(shown, config, artefacts.figure)
    title = f"Intrinsic dimension: {config.task}, {Path(config.model).name}"
    yield artefacts.tabulate(title, words(shown, grid), [sheet(shown, grid)])


def _estimate(file: GradientFile, grid: Grid, seed: int) -> dict[str, Any]:
    neighbours = nearest(file.rows, max(grid.neighbours), "cosine", grid.standard)
    points = len(neighbours.distances)
    dimension = file.rows.shape[1]
    noise = gaussian_estimates(points, dimension, grid.neighbours, grid.standard, seed)
    return {
        "dimension": dimension,
        "duplicates": neighbours.duplicates,
        "estimates": [asdict(one) for one in estimates(neighbours, grid.neighbours)],
        "gaussian": [asdict(one) for one in noise],
    }


def _as_noise(figures: dict[str, Any], grid: Grid, seed: int) -> list[float | None]:
    own = [Estimate(**one) for one in figures["estimates"]]
    points = grid.samples - figures["duplicates"]
    return noise_dimensions(own, points, figures["dimension"], grid.standard, seed)


def sheet(found: dict[int, Any], grid: Grid) -> Sheet:
    """Return the table: prompt lengths down, numbers of neighbours across."""
    lines = []
    for length, figures in found.items():
        entries = [Entry(f"{figures['dimension']}", figures["dimension"])]
        for own, noise in zip(figures["estimates"], figures["gaussian"], strict=True):
            low, high = own["interval"]
            text = f"{own['value']:.1f} ({low:.1f} – {high:.1f}); {noise['value']:.1f}"
            entries.append(Entry(text, own["value"]))
        entries.append(Entry(_range(figures), None))
        entries.append(Entry(str(figures["duplicates"]), figures["duplicates"]))
        lines.append((str(length), tuple(entries)))
    head = (
        "prompt length",
        "d",
        *(f"k = {k}" for k in grid.neighbours),
        "as noise of",
        "duplicates",
    )
    caption = (
        f"Estimate from {grid.samples} gradients (95 % bootstrap interval over points); behind the "
        "semicolon the estimate of isotropic Gaussian points of the same number and dimension; as "
        "noise of: how many dimensions such points have that give the same estimates."
    )
    return Sheet(caption, head, tuple(lines))


def _range(figures: dict[str, Any]) -> str:
    """Return the dimensions of noise that gives the same estimates, over all k."""
    known = [value for value in figures[AS_NOISE] if value is not None]
    if len(known) < len(figures[AS_NOISE]):
        return f"{min(known):.0f} or more" if known else "not told"
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return low if low == high else f"{low} – {high}"


def words(found: dict[int, Any], grid: Grid) -> Iterator[str]:
    """Say what the estimates support, and what not."""
    shares = {
        length: [
            own["value"] / noise["value"]
            for own, noise in zip(figures["estimates"], figures["gaussian"], strict=True)
        ]
        for length, figures in found.items()
    }
    low, high = min(map(min, shares.values())), max(map(max, shares.values()))
    yield (
        f"Gradients are estimated at {figure_text(100 * low, None)} to "
        f"{figure_text(100 * high, None)} % of what isotropic noise gives under the same sampling. "
        f"{grid.samples} points cannot show more dimensions than that, whatever they have: an "
        "estimate near the noise's is the estimator's own ceiling."
    )
    yield (
        "Distances are cosine distances, as in the paper. They grow with the square of the one "
        "between directions, so all estimates, noise's too, are half of the number of dimensions "
        "that the directions take up."
    )
    if low >= CEILING:
        yield (
            "All estimates are at that ceiling. They do not show that the gradients have few "
            "dimensions; they show that there are too few points to see how many."
        )
    elif high < CEILING:
        yield (
            "All estimates are below that ceiling, so the gradients do concentrate: neighbours are "
            "nearer than noise would have them. The figures are lower bounds of the dimension."
        )
        same = ", ".join(f"{_range(figures)} (l = {length})" for length, figures in found.items())
        yield (
            "What so few points do to an estimate, they do to that of noise, too. Noise gives the "
            f"same estimates if it has so many dimensions: {same}."
        )
    else:
        yield (
            f"Some estimates are below that ceiling (under {CEILING:.0%} of it) and some are not: "
            "only the former show that the gradients concentrate."
        )


def draw(found: dict[int, Any], config: RunConfig, path: Path) -> None:
    """Draw estimates against prompt length, a line for each k; against k if there is one length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5, 3.1), layout="constrained")
    place = figure.subplots()
    title = f"{config.task} · {Path(config.model).name}"
    if len(found) > 1:
        _over_lengths(place, found)
    else:
        [(length, figures)] = found.items()
        title += f" · l = {length}"
        _over_neighbours(place, figures)
    place.set_ylabel("estimated dimension")
    place.set_ylim(bottom=0)
    place.set_title(title, fontsize=9)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    figure.savefig(path, dpi=200)


def _over_lengths(place: Any, found: dict[int, Any]) -> None:
    for number, first in enumerate(next(iter(found.values()))["estimates"]):
        own = [figures["estimates"][number] for figures in found.values()]
        noise = [figures["gaussian"][number] for figures in found.values()]
        color = COLORS[number % len(COLORS)]
        _line(place, list(found), own, noise, color, f"k = {first['k']}")
    place.plot([], [], STYLES[2], color="black", lw=1.3, label="Gaussian")
    place.set_xlabel("prompt length")


def _over_neighbours(place: Any, figures: dict[str, Any]) -> None:
    ks = [one["k"] for one in figures["estimates"]]
    _line(place, ks, figures["estimates"], figures["gaussian"], BLUE, "gradients")
    place.plot([], [], STYLES[2], color=BLUE, lw=1.3, label="Gaussian")
    place.set_xlabel("neighbours k")


def _line(
    place: Any, x: list[int], own: list[Any], noise: list[Any], color: str, label: str
) -> None:
    """Draw estimates with their intervals, and noise's dotted."""
    style: dict[str, Any] = {"color": color, "lw": 1.3, "ms": 3}
    place.plot(x, [one["value"] for one in own], "o-", label=label, **style)
    low, high = zip(*(one["interval"] for one in own), strict=True)
    place.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
    place.plot(x, [one["value"] for one in noise], "." + STYLES[2], **style)
