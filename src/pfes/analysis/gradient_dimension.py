"""The intrinsic dimension of prompt search, estimated from gradients at random prompts."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pfes.analysis.artefacts import Artefacts
from pfes.analysis.dimension import Estimate, estimates, gaussian_estimates, noise_dimensions
from pfes.analysis.gradients import GradientFile, collect_gradients
from pfes.analysis.neighbours import Standard, nearest
from pfes.config import RunConfig, is_served
from pfes.errors import SettingError
from pfes.models.local.load import open_local_model
from pfes.models.local.local_model import LocalModel
from pfes.reporting.sheets import Entry, Sheet, figure_text
from pfes.searches.encoded import encode_for
from pfes.studies.plan import short_name
from pfes.system.colors import BLUE, COLORS, STYLES
from pfes.system.stages import Stage
from pfes.tasks.loader import load_run_task

NAME = "intrinsic-dimension"
MODEL_SETTINGS = ("model", "seed", "shots", "dtype")  # settings that change the results
COLUMNS = 4  # of the figure, as in the paper
AS_NOISE = "as_noise"  # JSON key: dimensions of noise that gives the same estimates
CEILING = 0.9  # from this share of the Gaussian estimate on, points look like noise


@dataclass(frozen=True)
class Grid:
    """The prompt lengths and numbers of neighbours to estimate for, and how."""

    lengths: Sequence[int]
    neighbours: Sequence[int]
    samples: int  # gradients for each prompt length
    standard: Standard = "coordinate"

    def check(self) -> None:
        """Refuse what cannot be estimated, before hours are spent on gradients."""
        if min(self.neighbours) < 2:
            raise SettingError("neighbours", f"must be at least 2, not {min(self.neighbours)}")
        if self.samples <= max(self.neighbours) + 1:
            raise SettingError(
                "samples",
                f"{max(self.neighbours)} neighbours need more than {self.samples} samples",
            )


Lengths = dict[str, Any]  # what was estimated, by prompt length


def intrinsic_dimension_analysis(
    configs: list[RunConfig], grid: Grid, out: Path, keep: bool = False
) -> Generator[Stage, None, list[Path]]:
    """Estimate the dimension for every prompt length and number of neighbours in `grid`.

    `configs` differ in their task only. Yield the stages of the work; return the paths of the files
    written. An interrupted analysis continues: finished lengths are kept, and an unfinished file of
    gradients is filled up. The gradients of a length are deleted after use, unless `keep` is set.
    """
    config = configs[0]
    grid.check()
    if is_served(config.model):
        raise SettingError(
            "model", "gradients need a local model, not a server: give a folder or a Hub name"
        )
    artefacts = Artefacts(out, NAME)
    settings = {name: getattr(config, name) for name in MODEL_SETTINGS} | asdict(grid)
    del settings["lengths"]  # a later call may add lengths, and tasks
    tasks: dict[str, Lengths] = artefacts.read(settings).get("tasks", {})

    def write() -> None:
        artefacts.write(settings, {"tasks": tasks})

    model: LocalModel | None = None
    for config in configs:
        name = short_name(config.task)
        results = tasks.setdefault(name, {})
        missing = [length for length in grid.lengths if str(length) not in results]
        if missing:
            yield Stage(f"{name}: loading")
            task = load_run_task(config)
            precision = config.dtype or "float32"  # also on a GPU: see `loss_gradients`
            loading = config.model_copy(update={"dtype": precision})
            model = model or open_local_model(loading, task.spec)
            write()  # the settings come first: a restart compares them before it uses the gradients
        for length in missing:
            assert model is not None
            batch = encode_for(model, task.spec, task.train, length)
            path = out / f"gradients-{name}-{length}.npy"
            file = GradientFile(path, grid.samples, length * model.width)
            for done in collect_gradients(model, batch, length, config.seed, file):
                yield Stage(f"{name}: gradients, l = {length}", done, grid.samples, "samples")
            yield Stage(f"{name}: neighbours, l = {length}")
            results[str(length)] = _estimate(file, grid, config.seed)
            write()
            if not keep:
                file.delete()
    requested = {
        name: {length: tasks[name][str(length)] for length in sorted(grid.lengths)}
        for name in (short_name(config.task) for config in configs)
    }
    for name, lengths in requested.items():
        for length, result in lengths.items():
            if AS_NOISE not in result:
                yield Stage(f"{name}: comparing with noise, l = {length}")
                result[AS_NOISE] = _as_noise(result, grid, config.seed)
                write()
    model_name = Path(config.model).name
    draw(requested, model_name, artefacts.figure)
    sheets = [sheet(name, lengths, grid) for name, lengths in requested.items()]
    notes = [
        f"{name}: {text}" if len(requested) > 1 else text
        for name, lengths in requested.items()
        for text in remarks(lengths)
    ]
    notes.append(DISTANCES)
    return artefacts.tabulate(f"Intrinsic dimension: {model_name}", notes, sheets)


def _estimate(file: GradientFile, grid: Grid, seed: int) -> dict[str, Any]:
    neighbours = nearest(file.rows, max(grid.neighbours), "cosine", grid.standard)
    points = len(neighbours.distances)
    dimension = file.rows.shape[1]
    noise = gaussian_estimates(points, dimension, grid.neighbours, grid.standard, seed)
    return {
        "dimension": dimension,
        "duplicates": neighbours.duplicates,
        "estimates": [asdict(estimate) for estimate in estimates(neighbours, grid.neighbours)],
        "gaussian": [asdict(estimate) for estimate in noise],
    }


def _as_noise(result: dict[str, Any], grid: Grid, seed: int) -> list[float | None]:
    measured = [Estimate(**estimate) for estimate in result["estimates"]]
    points = grid.samples - result["duplicates"]
    return noise_dimensions(measured, points, result["dimension"], grid.standard, seed)


def sheet(task: str, results: dict[int, Any], grid: Grid) -> Sheet:
    """Return the table of a task: a row for each prompt length, a column for each k."""
    lines = []
    for length, result in results.items():
        entries = [Entry(f"{result['dimension']}", result["dimension"])]
        for estimate, noise in zip(result["estimates"], result["gaussian"], strict=True):
            low, high = estimate["interval"]
            text = f"{estimate['value']:.1f} ({low:.1f} – {high:.1f}); {noise['value']:.1f}"
            entries.append(Entry(text, estimate["value"]))
        entries.append(Entry(_range(result), None))
        entries.append(Entry(str(result["duplicates"]), result["duplicates"]))
        lines.append((str(length), tuple(entries)))
    head = (
        "prompt length",
        "d",
        *(f"k = {k}" for k in grid.neighbours),
        "as noise of",
        "duplicates",
    )
    caption = (
        f"{task}: estimate from {grid.samples} gradients (95 % bootstrap interval over points); "
        "behind the semicolon the estimate of isotropic Gaussian points of the same number and "
        "dimension; as noise of: how many dimensions such points have that give the same estimates."
    )
    return Sheet(caption, head, tuple(lines))


def _range(result: dict[str, Any]) -> str:
    """Return the range, over all k, of the dimensions of noise that gives the same estimates."""
    dimensions = [value for value in result[AS_NOISE] if value is not None]
    if len(dimensions) < len(result[AS_NOISE]):
        return f"{min(dimensions):.0f} or more" if dimensions else "not told"
    low, high = f"{min(dimensions):.0f}", f"{max(dimensions):.0f}"
    return low if low == high else f"{low} – {high}"


DISTANCES = (
    "Distances are cosine distances, as in the paper. They grow with the square of the one between "
    "directions, so all estimates, noise's too, are half of the number of dimensions that the "
    "directions take up."
)


def remarks(results: dict[int, Any]) -> Iterator[str]:
    """Say what the estimates show and what they do not."""
    shares = {
        length: [
            estimate["value"] / noise["value"]
            for estimate, noise in zip(result["estimates"], result["gaussian"], strict=True)
        ]
        for length, result in results.items()
    }
    low, high = min(map(min, shares.values())), max(map(max, shares.values()))
    yield (
        f"Gradients are estimated at {figure_text(100 * low, None)} to "
        f"{figure_text(100 * high, None)} % of what isotropic noise gives under the same sampling. "
        "So many points cannot show more dimensions than that, whatever they have: an estimate "
        "near the noise's is the estimator's own ceiling."
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
        same = ", ".join(f"{_range(result)} (l = {length})" for length, result in results.items())
        yield (
            "What so few points do to an estimate, they do to that of noise, too. Noise gives the "
            f"same estimates if it has so many dimensions: {same}."
        )
    else:
        yield (
            f"Some estimates are below that ceiling (under {CEILING:.0%} of it) and some are not: "
            "only the former show that the gradients concentrate."
        )


def draw(tasks: dict[str, dict[int, Any]], model: str, path: Path) -> None:
    """Draw a panel for each task: estimates over prompt length, a line for each k.

    For a single length they are drawn over k.
    """
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    size = (0.3 + 3.2 * columns, 0.5 + 2.6 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, (task, results) in zip(axes, tasks.items(), strict=False):
        title = f"{task} · {model}"
        if len(results) > 1:
            _over_lengths(axis, results)
        else:
            [(length, result)] = results.items()
            title += f" · l = {length}"
            _over_neighbours(axis, result)
        axis.set_ylabel("estimated dimension")
        axis.set_ylim(bottom=0)
        axis.set_title(title, fontsize=9)
    for axis in axes[len(tasks) :]:
        axis.set_visible(False)
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    figure.savefig(path, dpi=200)


def _over_lengths(axis: Any, results: dict[int, Any]) -> None:
    for i, first in enumerate(next(iter(results.values()))["estimates"]):
        measured = [result["estimates"][i] for result in results.values()]
        noise = [result["gaussian"][i] for result in results.values()]
        color = COLORS[i % len(COLORS)]
        _line(axis, list(results), measured, noise, color, f"k = {first['k']}")
    axis.plot([], [], STYLES[2], color="black", lw=1.3, label="Gaussian")
    axis.set_xlabel("prompt length")


def _over_neighbours(axis: Any, result: dict[str, Any]) -> None:
    ks = [estimate["k"] for estimate in result["estimates"]]
    _line(axis, ks, result["estimates"], result["gaussian"], BLUE, "gradients")
    axis.plot([], [], STYLES[2], color=BLUE, lw=1.3, label="Gaussian")
    axis.set_xlabel("neighbours k")


def _line(
    axis: Any, x: list[int], measured: list[Any], noise: list[Any], color: str, label: str
) -> None:
    """Draw the estimates with their intervals, and those of noise as a dotted line."""
    style: dict[str, Any] = {"color": color, "lw": 1.3, "ms": 3}
    axis.plot(x, [estimate["value"] for estimate in measured], "o-", label=label, **style)
    low, high = zip(*(estimate["interval"] for estimate in measured), strict=True)
    axis.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
    axis.plot(x, [estimate["value"] for estimate in noise], "." + STYLES[2], **style)
