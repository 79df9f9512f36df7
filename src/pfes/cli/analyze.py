"""`pfes analyze`: why searching the full space works."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pfes.cli.options import ALL, comma_parts, with_settings
from pfes.config import make_config
from pfes.errors import PfesError

analyze = typer.Typer(help="The paper's analyses, on any model and task.", no_args_is_help=True)

PLACE = ("data_dir", "device", "dtype", "device_map", "trust_remote_code", "max_batch_tokens")
GRADIENTS = ("model", "task", "seed", "shots", *PLACE)
SEARCHES = tuple(name for name in ALL if name not in ("task", "method", "seed"))
PROJECTION = {"budget": 10_000, "prompt_length": 5, "test_limit": 100}  # the paper's, but the test

Out = Annotated[
    Path | None, typer.Option("--out", help="folder to write, and to go on in [in analyses/]")
]
Runs = Annotated[list[Path], typer.Argument(help="folders of finished runs")]
Tasks = Annotated[str, typer.Option(help="task names or YAML files, with commas")]
Jobs = Annotated[int, typer.Option(min=1, help="processes, which share the cores")]


@analyze.command("intrinsic-dimension")
@with_settings(GRADIENTS)
def intrinsic_dimension(
    settings: dict[str, Any],
    out: Out = None,
    prompt_lengths: Annotated[str, typer.Option(help="with commas")] = "5,10,20,40,50,80,100",
    neighbours: Annotated[str, typer.Option(help="k, with commas")] = "5,10,20,30,40,50",
    samples: Annotated[int, typer.Option(min=4, help="random prompts of each length")] = 5000,
    standard: Annotated[
        str, typer.Option(help="zero mean and unit variance of each coordinate, vector, or none")
    ] = "coordinate",
    keep: Annotated[bool, typer.Option("--keep", help="keep the gradients, gigabytes")] = False,
) -> None:
    """Estimate how many dimensions the loss's gradients have, beside noise of the same shape."""
    from pfes.analysis.intrinsic import Grid, intrinsic_dimension_analysis

    if standard not in ("coordinate", "vector", "none"):
        raise PfesError(f"--standard {standard}: coordinate, vector or none")
    lengths = [int(v) for v in _numbers("--prompt-lengths", prompt_lengths, whole=True)]
    ks = [int(v) for v in _numbers("--neighbours", neighbours, whole=True)]
    grid = Grid(lengths, ks, samples, standard)  # type: ignore[arg-type]
    config = make_config(**settings)
    place = _place(out, "intrinsic-dimension", config.model, config.task)
    _finish(_follow(intrinsic_dimension_analysis(config, grid, place, keep), samples))


@analyze.command("projection")
@with_settings(SEARCHES)
def projection(
    settings: dict[str, Any],
    tasks: Tasks,
    out: Out = None,
    seed: Annotated[int, typer.Option(min=0, help="of split, start and search")] = 0,
    jobs: Jobs = 1,
) -> None:
    """Compare CMA-ES in the full space with CMA-ES in a random subspace, from the same start."""
    from pfes.analysis.projection import projection_analysis, projection_plan

    names = comma_parts("--tasks", tasks)
    plan = projection_plan(PROJECTION | settings | {"seed": seed}, names)
    place = _place(out, "projection", plan[0].config.model)
    _carry_out("projection", plan, place, jobs)
    _finish(projection_analysis(plan, place))


@analyze.command("sensitivity")
@with_settings(tuple(name for name in ALL if name not in ("task", "seed")))
def sensitivity(
    settings: dict[str, Any],
    tasks: Tasks,
    over: Annotated[str, typer.Option(help="beta, intrinsic-dimension or sigma0")],
    out: Out = None,
    values: Annotated[str | None, typer.Option(help="with commas [the paper's]")] = None,
    seeds: Annotated[str, typer.Option(help="with commas")] = "0,1,42,43,100",
    jobs: Jobs = 1,
) -> None:
    """Run a grid over one setting and draw the test metric against it."""
    from pfes.analysis.sensitivity import VALUES, sensitivity_analysis, sensitivity_spec
    from pfes.studies import plan_runs
    from pfes.studies.report import read_report
    from pfes.studies.store import FolderStore

    if over not in VALUES:
        raise PfesError(f"--over {over}: {', '.join(VALUES)}")
    if "model" not in settings:
        raise PfesError("--model: Field required")
    grid = VALUES[over] if values is None else tuple(_numbers("--values", values))
    chosen = [int(v) for v in _numbers("--seeds", seeds, whole=True)]
    spec = sensitivity_spec(over, grid, comma_parts("--tasks", tasks), chosen, settings)
    plan = plan_runs(spec, {})
    place = _place(out, spec.name, settings["model"])
    _carry_out(spec.name, plan, place, jobs)
    _finish(sensitivity_analysis(read_report(spec, plan, FolderStore(place)), over, grid, place))


@analyze.command("confidence")
def confidence(runs: Runs, out: Out = None) -> None:
    """Compare metric, probability and rank of the answers of saved runs."""
    from pfes.analysis.confidence import confidence_analysis

    _finish(confidence_analysis(runs, _place(out, "confidence")))


@analyze.command("convergence")
def convergence(runs: Runs, out: Out = None) -> None:
    """Draw the training loss of saved runs against evaluations and seconds, median over seeds."""
    from pfes.analysis.convergence import convergence_analysis

    _finish(convergence_analysis(runs, _place(out, "convergence")))


@analyze.command("cost")
def cost(runs: Runs, out: Out = None) -> None:
    """Compare seconds per evaluation of saved runs, and the optimizer's share of them."""
    from pfes.analysis.cost import cost_analysis

    _finish(cost_analysis(runs, _place(out, "cost")))


def _place(out: Path | None, *names: str) -> Path:
    """Return the folder of an analysis: the one given, or one named by what it is of."""
    from pfes.studies.plan import short_name

    return out or Path("analyses") / "-".join(map(short_name, names))


def _follow(steps: Iterator[Any], total: int) -> list[Path]:
    """Show the stages of an analysis, and return its files."""
    from pfes.cli.progress import display

    files: list[Path] = []
    try:
        with display(total, quiet=False) as shown:
            for step in steps:
                if isinstance(step, list):
                    files = step
                else:
                    shown.show(step)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to go on.", file=sys.stderr)
        raise typer.Exit(130) from None
    return files


def _carry_out(name: str, plan: list[Any], out: Path, jobs: int) -> None:
    from pfes.cli.study import carry_out_here, show

    if show(name, plan, out, carry_out_here(plan, out, jobs)):
        raise typer.Exit(1)


def _finish(files: list[Path]) -> None:
    """Print the table's words, and where the files are."""
    print(next(file for file in files if file.suffix == ".md").read_text(encoding="utf-8"))
    for file in files:
        print(file)


def _numbers(option: str, text: str, whole: bool = False) -> list[float]:
    """Return the numbers of a list, each once."""
    found = []
    for part in comma_parts(option, text):
        try:
            value = int(part) if whole else float(part)
        except ValueError:
            kind = "whole numbers" if whole else "numbers"
            raise PfesError(f"{option} {text}: {kind}, with commas between") from None
        if value < 0 or (value == 0 and option != "--seeds"):
            raise PfesError(f"{option} {text}: {part} is too small")
        found.append(value)
    return list(dict.fromkeys(found))
