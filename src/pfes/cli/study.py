"""`pfes study`: a grid of runs, carried out in pieces, and its report."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfes.cli.options import comma_parts
from pfes.errors import PfesError, printable
from pfes.models.client import is_served

if TYPE_CHECKING:
    from pfes.studies import PlannedRun
    from pfes.studies.carry_out import RunEvent

study = typer.Typer(help="Carry out and report a grid of runs.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="the study's YAML file")]
Out = Annotated[
    str, typer.Option(help="folder of runs, which studies may share, or an address such as s3://…")
]
Models = Annotated[str | None, typer.Option("--model", help="these models instead, with commas")]
Tasks = Annotated[str | None, typer.Option(help="these tasks instead, with commas")]
Seeds = Annotated[str | None, typer.Option(help="these seeds instead, with commas")]
Budget = Annotated[int | None, typer.Option(min=1, help="function evaluations of every run")]
DataDir = Annotated[str | None, typer.Option(help="folder with local copies, one per task")]


@study.command("run")
def run_study(
    file: File,
    out: Out = "runs",
    model: Models = None,
    tasks: Tasks = None,
    seeds: Seeds = None,
    budget: Budget = None,
    data_dir: DataDir = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes, which share the cores")] = 1,
    engine: Annotated[
        str, typer.Option(help="serial, or ray[:ADDRESS]: each run a task of a cluster")
    ] = "serial",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of a run on Ray")] = 1,
    gpus_per_worker: Annotated[float, typer.Option(min=0, help="GPUs of a run on Ray")] = 0.0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with a model")
    ] = False,
) -> None:
    """Carry out what is not finished; stop it at any time, and run it again to go on."""
    spec, plan = _plan(file, model, tasks, seeds, budget, data_dir, trust_remote_code)
    if engine == "serial":
        events = carry_out_here(plan, out, jobs)
    else:
        from pfes.studies.ray_runs import carry_out_on_ray

        events = carry_out_on_ray(plan, out, engine, threads, gpus_per_worker)
    if show(spec.name, plan, out, events):
        raise typer.Exit(1)


def carry_out_here(plan: "list[PlannedRun]", out: str | Path, jobs: int) -> "Iterator[RunEvent]":
    """Carry out what is not finished, in this process or in several."""
    from pfes.studies.carry_out import carry_out
    from pfes.studies.workers import carry_out_in_processes

    return carry_out(plan, out) if jobs == 1 else carry_out_in_processes(plan, out, jobs)


def show(name: str, plan: "list[PlannedRun]", out: str | Path, events: "Iterator[RunEvent]") -> int:
    """Show a study to its end, under one table; return how many runs failed.

    A task that cannot be read ends it before the first run.
    """
    from pfes.cli.study_display import follow_study
    from pfes.tasks.spec import read_spec

    for task in dict.fromkeys(run.config.task for run in plan):
        read_spec(task)
    started = time.perf_counter()
    try:
        failed = follow_study(name, plan, events)
    except KeyboardInterrupt:
        print(f"\nStopped. Run the same command to go on; runs are in {out}", file=sys.stderr)
        raise typer.Exit(130) from None
    for label, message in failed:
        print(printable(f"failed: {label}: {message}"), file=sys.stderr)
    minutes = (time.perf_counter() - started) / 60
    print(f"{len(plan) - len(failed)} of {len(plan)} runs are in {out} ({minutes:.1f} min)")
    return len(failed)


@study.command("report")
def report_study(
    file: File,
    out: Out = "runs",
    model: Models = None,
    tasks: Tasks = None,
    seeds: Seeds = None,
    budget: Budget = None,
    data_dir: DataDir = None,
    html: Annotated[bool, typer.Option("--html", help="also write one interactive page")] = False,
) -> None:
    """Turn whatever runs there are into tables and figures, in `report-NAME` beside them."""
    from pfes.studies.report import read_report, write_report
    from pfes.studies.store import open_store

    spec, plan = _plan(file, model, tasks, seeds, budget, data_dir)
    store = open_store(out)
    if not store.exists():
        raise PfesError(f"--out {out} does not exist: pfes study run makes it")
    files = write_report(read_report(spec, plan, store), store.report(spec.name), html)
    for written in store.keep_report(files):
        print(written)


def _plan(
    file: Path,
    model: str | None,
    tasks: str | None,
    seeds: str | None,
    budget: int | None,
    data_dir: str | None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    from pfes.studies import plan_runs, read_study

    spec = read_study(file)
    changes: dict[str, Any] = {}
    if model is not None:
        changes["models"] = _models(model)
    if tasks is not None:
        changes["tasks"] = comma_parts("--tasks", tasks)
    if seeds is not None:
        try:
            changes["seeds"] = [int(part) for part in comma_parts("--seeds", seeds)]
        except ValueError:
            raise PfesError(f"--seeds {seeds}: whole numbers, with commas between") from None
    spec = spec.model_copy(update=changes)
    given = {"budget": budget, "data_dir": data_dir, "trust_remote_code": trust_remote_code or None}
    overrides = {name: value for name, value in given.items() if value is not None}
    return spec, plan_runs(spec, overrides)


def _models(text: str) -> list[str]:
    """Return the models of a list; a server's address belongs to the `vllm:` before it."""
    models: list[str] = []
    for part in comma_parts("--model", text):
        if models and is_served(models[-1]) and part.startswith(("http://", "https://")):
            models[-1] += f",{part}"
        else:
            models.append(part)
    return models
