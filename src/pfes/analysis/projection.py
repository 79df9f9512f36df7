"""What searching a random subspace loses: CMA-ES in the full space and in the subspace."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pfes.analysis.artefacts import Artefacts
from pfes.config import RunConfig, make_config
from pfes.contract import Floats, LanguageModel
from pfes.errors import PfesError, SettingError
from pfes.methods import ALIGNED, UNIT, get_method, settings_of
from pfes.models.open import open_model
from pfes.reporting.paper import paper_analysis
from pfes.reporting.sheets import Entry, Sheet
from pfes.runs.check import check_settings
from pfes.runs.saved import SavedRun
from pfes.searches.initial_prompt import initial_prompt
from pfes.searches.spaces import RandomSubspace
from pfes.studies.plan import PlannedRun, config_key, model_name
from pfes.system.colors import BLUE, ORANGE
from pfes.tasks.spec import read_spec

NAME = "projection"
FULL, SUBSPACE = "cmaes", "bbt"
HEAD = ("task", "loss, full space", "loss, subspace", "γ_OP", "γ_PI", "√(1 + γ_OP²)")


def projection_plan(settings: dict[str, Any], tasks: list[str]) -> list[PlannedRun]:
    """Return two runs for each task from the same start: in the full space and in the subspace.

    The initial step sizes make the steps in both spaces equally long, in the mean square.
    """
    plan = []
    full = settings_of(get_method(FULL))
    for task in tasks:
        for method in (FULL, SUBSPACE):
            config = make_config(**settings | {"task": task, "method": method})
            # the subspace takes all that the full space takes, and its dimension
            given = settings.keys() if method == SUBSPACE else settings.keys() & {*full}
            check_settings(config, given)
            if config.sigma0 == "auto":
                raise SettingError("sigma0", "both spaces need steps of one energy: give a number")
            sigma0 = config.sigma0 if isinstance(config.sigma0, float) else UNIT.masked
            factor = ALIGNED.masked if method == FULL else 1.0  # the same for causal models
            config = config.model_copy(update={"sigma0": sigma0 * factor})
            plan.append(PlannedRun(method, config, config_key(config)))
    return plan


@dataclass(frozen=True)
class Projection:
    """How far two searches moved from the same start, and how far apart they ended."""

    task: str
    loss_full: float
    loss_subspace: float
    gamma_op: float  # ‖A y − 0‖ / ‖x − x_init‖: distance moved, subspace over full space
    gamma_pi: float  # ‖x − (A y + x_init)‖ / ‖x − x_init‖: distance between the solutions, scaled

    @property
    def orthogonal(self) -> float:
        """The γ_PI of two searches that moved in orthogonal directions."""
        return math.sqrt(1 + self.gamma_op**2)


def compare_spaces(
    task: str, start: Floats, full: Floats, subspace: Floats, losses: tuple[float, float]
) -> Projection:
    """Compare the solutions of both searches with their start; all three are prompts."""
    distance = float(np.linalg.norm(full - start))
    if distance == 0:
        raise PfesError(f"{task}: the search in the full space never left its start")
    gamma_op = float(np.linalg.norm(subspace - start)) / distance
    return Projection(task, *losses, gamma_op, float(np.linalg.norm(full - subspace)) / distance)


def projection_analysis(plan: list[PlannedRun], out: Path) -> list[Path]:
    """Compare the finished runs of a plan; return the paths of the files written."""
    projections, curves = [], {}
    model: LanguageModel | None = None
    for full, subspace in zip(plan[::2], plan[1::2], strict=True):
        model = model or open_model(full.config, read_spec(full.config.task)[0])
        projections.append(_compare(full, subspace, out, model))
        curves[full.task_name] = [_curve(out, run) for run in (full, subspace)]
    config = plan[0].config
    artefacts = Artefacts(out, NAME)
    settings = {"model": config.model, "budget": config.budget, "seed": config.seed}
    settings |= {"prompt_length": config.prompt_length}
    settings |= {"intrinsic_dimension": config.intrinsic_dimension}
    artefacts.write(settings, {"tasks": [asdict(p) for p in projections]})
    _draw(curves, config, artefacts.figure)
    title = f"Random projections: {model_name(config.model, config.served_name)}"
    return artefacts.tabulate(title, _remarks(projections), list(_sheets(projections, config)))


def _compare(full: PlannedRun, subspace: PlannedRun, out: Path, model: LanguageModel) -> Projection:
    configs, bests, losses = [], [], []
    for planned in (full, subspace):
        run = SavedRun(out / planned.folder)
        state = run.checkpoint
        if not run.finished or state is None:
            raise PfesError(f"{run.path} is not finished: run the same command again to continue")
        configs.append(run.config)
        bests.append(state["search"]["optimizer"]["best"])
        losses.append(state["search"]["optimizer"]["best_value"])
    config: RunConfig = configs[1]
    assert config.prompt_length is not None
    start = initial_prompt(model, config.prompt_length, config.start_seed, config.init)
    space = RandomSubspace(start, round(config.intrinsic_dimension), config.seed)
    subspace_solution = space.prompts(bests[1][None])[0]
    full_solution = bests[0].reshape(start.shape)
    return compare_spaces(
        full.task_name, start, full_solution, subspace_solution, (losses[0], losses[1])
    )


def _sheets(projections: list[Projection], config: RunConfig) -> Iterator[Sheet]:
    lines = [(p.task, _entries(asdict(p), p.orthogonal)) for p in projections]
    caption = (
        f"{model_name(config.model, config.served_name)}, prompt length {config.prompt_length}, "
        f"{config.budget} function evaluations, seed {config.seed}"
    )
    yield Sheet(caption, HEAD, tuple(lines))
    paper = paper_analysis(NAME)
    paper_lines = [
        (p.task, _entries(figures, math.sqrt(1 + figures["gamma_op"] ** 2)))
        for p in projections
        if (figures := paper["rows"].get(p.task))
    ]
    if paper_lines:
        model = model_name(config.model, config.served_name)
        ours = {"model": model, "budget": config.budget, "prompt_length": config.prompt_length}
        differing = [name.replace("_", " ") for name in ours if ours[name] != paper[name]]
        note = "the same model, budget and prompt length"
        if differing:
            note = f"another {', '.join(differing)}: not comparable"
        caption = f"The paper's figures: {paper['model']}, {paper['budget']} evaluations ({note})"
        yield Sheet(caption, HEAD, tuple(paper_lines))


def _entries(figures: dict[str, float], orthogonal: float) -> tuple[Entry, ...]:
    names = ("loss_full", "loss_subspace", "gamma_op", "gamma_pi")
    values = [*(figures[name] for name in names), orthogonal]
    return tuple(Entry(f"{value:.4f}", value) for value in values)


def _remarks(projections: list[Projection]) -> Iterator[str]:
    lower = sum(p.loss_full < p.loss_subspace for p in projections)
    yield f"The full space has the lower training loss on {lower} of {len(projections)} tasks."
    yield (
        "γ_OP is the length of the way in the subspace by that in the full space; γ_PI the "
        "distance between both ends by the latter. Two ways that have nothing to do with each "
        "other are orthogonal in so many dimensions, and then γ_PI is √(1 + γ_OP²): only a γ_PI "
        "well below that would mean that both searches went the same way, and one above 1 is no "
        "sign that the subspace's solution is hard to improve."
    )


def _curve(out: Path, run: PlannedRun) -> list[tuple[int, float]]:
    history = SavedRun(out / run.folder).history
    return [(line["evaluations"], line["best_loss"]) for line in history]


def _draw(curves: dict[str, list[list[tuple[int, float]]]], config: RunConfig, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.5 + 3.0 * len(curves), 2.6), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    subspace = f"subspace, d̃ = {config.intrinsic_dimension:g}"
    looks = [(BLUE, "-", "full space"), (ORANGE, "--", subspace)]
    for axis, (task, pair) in zip(axes, curves.items(), strict=True):
        for curve, (color, style, label) in zip(pair, looks, strict=True):
            spent, losses = zip(*curve, strict=True)
            axis.plot(spent, losses, style, color=color, lw=1.4, label=label)
        axis.set_title(f"{task} · {model_name(config.model, config.served_name)}", fontsize=9)
        axis.set_xlabel("function evaluations")
        axis.set_ylabel("best training loss")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, dpi=200)
