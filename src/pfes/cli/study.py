"""`pfes study`: do a grid of runs, which can be interrupted, and report it."""

import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfes.cli.options import comma_parts, setting_help
from pfes.config import is_served
from pfes.errors import SettingError, printable

if TYPE_CHECKING:
    from pfes.studies.execute import RunEvent
    from pfes.studies.plan import PlannedRun

study = typer.Typer(help="Do a grid of runs and report its results.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="study name (see pfes study list) or YAML file")]
Out = Annotated[
    str,
    typer.Option(help="folder of the runs (studies may share it), or an address such as s3://…"),
]
Models = Annotated[
    str | None, typer.Option("--model", help="use these models instead, comma-separated")
]
Tasks = Annotated[str | None, typer.Option(help="use these tasks instead, comma-separated")]
Seeds = Annotated[str | None, typer.Option(help="use these seeds instead, comma-separated")]
Budget = Annotated[int | None, typer.Option(min=1, help="function evaluations of every run")]
ExtraRows = Annotated[
    bool, typer.Option("--extra-rows", help="with the study's extra rows, if it has any")
]
DataDir = Annotated[
    str | None, typer.Option(help="folder with local copies of data sets, one per task")
]
Dtype = Annotated[str | None, typer.Option(help=f"{setting_help('dtype')}; names other runs")]


@study.command("list")
def list_studies() -> None:
    """List the studies that come with pfes: the paper's tables and figures, and ours."""
    from pfes.cli.listings import print_table
    from pfes.studies.plan import builtin_studies, read_study_spec

    specs = map(read_study_spec, builtin_studies())
    print_table(
        "Studies; your own is a YAML file", ("name", "what"), [(s.name, s.title) for s in specs]
    )


@study.command("run")
def run_study(
    name: Name,
    out: Out = "runs",
    model: Models = None,
    tasks: Tasks = None,
    seeds: Seeds = None,
    budget: Budget = None,
    data_dir: DataDir = None,
    extra_rows: ExtraRows = False,
    dtype: Dtype = None,
    device: Annotated[str | None, typer.Option(help=setting_help("device"))] = None,
    device_map: Annotated[str | None, typer.Option(help=setting_help("device_map"))] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="number of processes, which share the cores, with a GPU each if there are any",
        ),
    ] = 1,
    engine: Annotated[
        str, typer.Option(help="serial, or ray[:ADDRESS] to do the runs on a Ray cluster")
    ] = "serial",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of a run on Ray")] = 1,
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of a run on Ray [1 if Ray has any, else 0]")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with a model")
    ] = False,
) -> None:
    """Do the runs that are not finished; stop it at any time, and run it again to continue."""
    given: dict[str, Any] = {"budget": budget, "data_dir": data_dir, "dtype": dtype}
    given |= {"device": device, "device_map": device_map}
    given["trust_remote_code"] = trust_remote_code or None
    spec, plan = _plan(name, model, tasks, seeds, given, extra_rows)
    if engine == "serial":
        from pfes.studies.study import execute_study

        events = execute_study(plan, out, jobs)
    else:
        from pfes.studies.ray_runs import execute_on_ray

        events = execute_on_ray(plan, out, engine, threads, gpus_per_worker)
    if show(spec.name, plan, out, events):
        raise typer.Exit(1)


def show(
    name: str, plan: "list[PlannedRun]", out: str | Path, events: "Generator[RunEvent, None, None]"
) -> int:
    """Show a study until its end; return how many runs failed."""
    from pfes.cli.study_display import follow_study

    started = time.perf_counter()
    try:
        failed = follow_study(name, plan, events)
    except KeyboardInterrupt:
        print(
            f"\nStopped. Run the same command to continue; the runs are in {out}", file=sys.stderr
        )
        raise typer.Exit(130) from None
    for label, message in failed:
        print(printable(f"failed: {label}: {message}"), file=sys.stderr)
    minutes = (time.perf_counter() - started) / 60
    print(f"{len(plan) - len(failed)} of {len(plan)} runs are in {out} ({minutes:.1f} min)")
    return len(failed)


@study.command("report")
def report_study(
    name: Name,
    out: Out = "runs",
    model: Models = None,
    tasks: Tasks = None,
    seeds: Seeds = None,
    budget: Budget = None,
    data_dir: DataDir = None,
    extra_rows: ExtraRows = False,
    dtype: Dtype = None,
    html: Annotated[bool, typer.Option("--html", help="also write one interactive page")] = False,
) -> None:
    """Write tables and figures of the finished runs to the folder `report-NAME` beside them."""
    from pfes.reporting.pages.study_page import study_page
    from pfes.reporting.study_report import read_report, write_report
    from pfes.studies.store import open_store

    given = {"budget": budget, "data_dir": data_dir, "dtype": dtype}
    spec, plan = _plan(name, model, tasks, seeds, given, extra_rows)
    store = open_store(out)
    if not store.exists():
        raise SettingError("out", f"{out} does not exist: do the runs first, with pfes study run")
    report = read_report(spec, plan, store)
    page = study_page(report) if html else None
    files = write_report(report, store.report(spec.name), page)
    for location in store.keep_report(files):
        print(location)


def _plan(
    name: str,
    model: str | None,
    tasks: str | None,
    seeds: str | None,
    settings: dict[str, Any],
    extra_rows: bool,
) -> tuple[Any, Any]:
    from pfes.studies.plan import plan_runs, read_study_spec

    spec = read_study_spec(name)
    if extra_rows:
        spec = spec.with_extra_rows()
    changes: dict[str, Any] = {}
    if model is not None:
        changes["models"] = _models(model)
    if tasks is not None:
        changes["tasks"] = comma_parts("tasks", tasks)
    if seeds is not None:
        try:
            changes["seeds"] = [int(part) for part in comma_parts("seeds", seeds)]
        except ValueError:
            raise SettingError(
                "seeds", f"{seeds!r} must be whole numbers, separated by commas"
            ) from None
    spec = spec.on(**changes)
    overrides = {name: value for name, value in settings.items() if value is not None}
    return spec, plan_runs(spec, overrides)


def _models(text: str) -> list[str]:
    """Return the models of a comma-separated list.

    A server's address after a `vllm:` or `openai:` model is another server of that model.
    """
    models: list[str] = []
    for part in comma_parts("model", text):
        if models and is_served(models[-1]) and part.startswith(("http://", "https://")):
            models[-1] += f",{part}"
        else:
            models.append(part)
    return models
