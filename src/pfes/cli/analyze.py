"""`pfes analyze`: the paper's analyses of why searching the full space works."""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import typer

from pfes.cli.options import ALL, comma_parts, with_settings
from pfes.config import make_config
from pfes.errors import SettingError

analyze = typer.Typer(help="Do the paper's analyses on any model and task.", no_args_is_help=True)

LOADING = ("data_dir", "device", "dtype", "device_map", "trust_remote_code", "max_batch_tokens")
GRADIENTS = ("model", "seed", "shots", *LOADING)
SEARCHES = tuple(name for name in ALL if name not in ("task", "method", "seed"))
PROJECTION = {
    "budget": 10_000,
    "prompt_length": 5,
    "test_limit": 100,
    "init": "vocab",
}  # as in the paper; it does not use the test

Out = Annotated[
    Path | None, typer.Option("--out", help="folder to write, or to continue in [in analyses/]")
]
Runs = Annotated[list[Path], typer.Argument(help="folders of finished runs")]
Tasks = Annotated[str, typer.Option(help="task names or YAML files, comma-separated")]
Jobs = Annotated[
    int, typer.Option(min=1, help="number of processes, which share the cores, with a GPU each")
]


@analyze.command("intrinsic-dimension")
@with_settings(GRADIENTS)
def intrinsic_dimension(
    settings: dict[str, Any],
    tasks: Tasks,
    out: Out = None,
    prompt_lengths: Annotated[str, typer.Option(help="comma-separated")] = "5,10,20,40,50,80,100",
    neighbours: Annotated[
        str, typer.Option(help="numbers of neighbours k, comma-separated")
    ] = "5,10,20,30,40,50",
    samples: Annotated[int, typer.Option(min=4, help="random prompts of each length")] = 5000,
    standard: Annotated[
        str, typer.Option(help="what gets zero mean and unit variance: coordinate, vector or none")
    ] = "coordinate",
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the files of gradients (gigabytes)")
    ] = False,
) -> None:
    """Estimate the dimension of the loss's gradients, and that of noise of the same shape."""
    from pfes.analysis.gradient_dimension import Grid, intrinsic_dimension_analysis

    if standard not in ("coordinate", "vector", "none"):
        raise SettingError("standard", f"no {standard!r}; choose coordinate, vector or none")
    lengths = [int(v) for v in _numbers("prompt_lengths", prompt_lengths, whole=True)]
    ks = [int(v) for v in _numbers("neighbours", neighbours, whole=True)]
    grid = Grid(lengths, ks, samples, standard)  # type: ignore[arg-type]
    names = comma_parts("tasks", tasks)
    configs = [make_config(**settings | {"task": name}) for name in names]
    folder = _folder(out, "intrinsic-dimension", configs[0].model, *names)
    _finish(_follow(intrinsic_dimension_analysis(configs, grid, folder, keep), samples))


@analyze.command("projection")
@with_settings(SEARCHES)
def projection(
    settings: dict[str, Any],
    tasks: Tasks,
    out: Out = None,
    seed: Annotated[
        int, typer.Option(min=0, help="seed of the data split, the initial prompt and the search")
    ] = 0,
    jobs: Jobs = 1,
) -> None:
    """Compare CMA-ES in the full space with CMA-ES in a random subspace, from the same start."""
    from pfes.analysis.projection import projection_analysis, projection_plan

    names = comma_parts("tasks", tasks)
    plan = projection_plan(PROJECTION | settings | {"seed": seed}, names)
    folder = _folder(out, "projection", plan[0].config.model)
    _execute("projection", plan, folder, jobs)
    _finish(projection_analysis(plan, folder))


@analyze.command("sensitivity")
@with_settings(tuple(name for name in ALL if name not in ("task", "seed")))
def sensitivity(
    settings: dict[str, Any],
    tasks: Tasks,
    over: Annotated[str, typer.Option(help="the setting: beta, intrinsic-dimension or sigma0")],
    out: Out = None,
    values: Annotated[str | None, typer.Option(help="comma-separated [as in the paper]")] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,42,43,100",
    jobs: Jobs = 1,
) -> None:
    """Do runs with several values of one setting and draw the test metric over them."""
    from pfes.analysis.sensitivity import VALUES, sensitivity_analysis, sensitivity_spec
    from pfes.reporting.study_report import read_report
    from pfes.studies.plan import plan_runs
    from pfes.studies.store import FolderStore

    if over not in VALUES:
        raise SettingError("over", f"no {over!r}; choose one of {', '.join(VALUES)}")
    if "model" not in settings:
        raise SettingError("model", "Field required")
    grid = VALUES[over] if values is None else tuple(_numbers("values", values))
    seed_numbers = [int(v) for v in _numbers("seeds", seeds, whole=True)]
    spec = sensitivity_spec(over, grid, comma_parts("tasks", tasks), seed_numbers, settings)
    plan = plan_runs(spec, {})
    folder = _folder(out, spec.name, settings["model"])
    _execute(spec.name, plan, folder, jobs)
    _finish(sensitivity_analysis(read_report(spec, plan, FolderStore(folder)), over, grid, folder))


@analyze.command("confidence")
def confidence(runs: Runs, out: Out = None) -> None:
    """Compare the metric, probability and rank of the answers of saved runs."""
    from pfes.analysis.confidence import confidence_analysis

    _finish(confidence_analysis(runs, _folder(out, "confidence")))


@analyze.command("convergence")
def convergence(runs: Runs, out: Out = None) -> None:
    """Draw the training loss of saved runs over evaluations and seconds (median over seeds)."""
    from pfes.analysis.convergence import convergence_analysis

    _finish(convergence_analysis(runs, _folder(out, "convergence")))


@analyze.command("cost")
def cost(runs: Runs, out: Out = None) -> None:
    """Compare the seconds per evaluation of saved runs, and the optimizer's share of them."""
    from pfes.analysis.cost import cost_analysis

    _finish(cost_analysis(runs, _folder(out, "cost")))


def _folder(out: Path | None, *names: str) -> Path:
    """Return the folder to write: `out` if given, else one in analyses/ made of the names."""
    from pfes.studies.plan import short_name

    return out or Path("analyses") / "-".join(map(short_name, names))


def _follow(work: Generator[Any, None, list[Path]], total: int) -> list[Path]:
    """Show the stages of an analysis, and return the paths of its files."""
    from pfes.cli.progress import display
    from pfes.system.stages import result_of

    try:
        with display(total, quiet=False) as shown:
            return result_of(work, shown.show)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to continue.", file=sys.stderr)
        raise typer.Exit(130) from None


def _execute(name: str, plan: list[Any], out: Path, jobs: int) -> None:
    from pfes.cli.study import show
    from pfes.studies.study import execute_study

    if show(name, plan, out, execute_study(plan, out, jobs)):
        raise typer.Exit(1)


def _finish(files: list[Path]) -> None:
    """Print the table with its remarks, and the paths of all files."""
    print(next(file for file in files if file.suffix == ".md").read_text(encoding="utf-8"))
    for file in files:
        print(file)


def _numbers(option: str, text: str, whole: bool = False) -> list[float]:
    """Return the numbers of a comma-separated list, without repetitions."""
    numbers = []
    for part in comma_parts(option, text):
        try:
            value = int(part) if whole else float(part)
        except ValueError:
            kind = "whole numbers" if whole else "numbers"
            raise SettingError(option, f"{text!r} must be {kind}, separated by commas") from None
        if value < 0 or (value == 0 and option != "seeds"):
            raise SettingError(option, f"{text!r}: {part} is too small")
        numbers.append(value)
    return list(dict.fromkeys(numbers))
