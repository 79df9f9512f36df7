"""Studies from Python: do the runs of one, and read their results as a DataFrame."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pandas as pd

from pfes.errors import PfesError
from pfes.studies.execute import RunEvent, check_plan, execute_runs
from pfes.studies.frame import read_results, study_frame
from pfes.studies.plan import PlannedRun, StudySpec, plan_runs, read_study_spec
from pfes.studies.processes import execute_in_processes
from pfes.studies.store import open_store


def execute_study(
    plan: list[PlannedRun], out: str | Path, jobs: int = 1
) -> Generator[RunEvent, None, None]:
    """Do the runs that are not finished, in this process or in several.

    A task or model that does not exist is an error before the first run.
    """
    check_plan(plan, open_store(out))
    if jobs == 1:
        return execute_runs(plan, out)
    return execute_in_processes(plan, out, jobs)


def run_study(
    study: str | Path | StudySpec,
    out: str | Path = "runs",
    *,
    jobs: int = 1,
    **settings: Any,
) -> pd.DataFrame:
    """Do the runs of a study that are not finished; return a table with a row for each run.

    `study` is a name, a YAML file or a `StudySpec`; `jobs` is the number of processes. `settings`
    override those of every run. Runs are saved in `out`, so an interrupted study continues when
    this is called again. If a run fails, the others are still done; then an error is raised.
    """
    spec = study if isinstance(study, StudySpec) else read_study_spec(study)
    plan = plan_runs(spec, settings)
    failed = [
        f"{plan[run_event.number].label}: {run_event.event}"
        for run_event in execute_study(plan, out, jobs)
        if isinstance(run_event.event, PfesError)
    ]
    if failed:
        raise PfesError(f"{len(failed)} of {len(plan)} runs failed; the first: {failed[0]}")
    return study_frame(plan, read_results(plan, open_store(out)))


def read_study(
    study: str | Path | StudySpec, out: str | Path = "runs", **settings: Any
) -> pd.DataFrame:
    """Return a table with a row for each run of a study, and its results if it is finished."""
    spec = study if isinstance(study, StudySpec) else read_study_spec(study)
    plan = plan_runs(spec, settings)
    return study_frame(plan, read_results(plan, open_store(out)))
