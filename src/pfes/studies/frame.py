"""The runs of a study as one table: a row for each planned run, finished or not."""

from collections import Counter
from typing import Any

import pandas as pd

from pfes.runs.result import Result
from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore

# columns of every run, and columns that are missing until a run has finished
PLANNED = ("row", "model", "task", "seed", "method", "folder", "finished")
MEASURED = (
    "metric", "test", "zero_shot", "initial", "validation", "train_loss", "initial_train_loss",
    "evaluations", "selected_at", "seconds_per_evaluation", "beta", "probability", "rank",
    "test_examples", "auc", "best_free", "over_free", "constant",
)  # fmt: skip


def read_results(plan: list[PlannedRun], store: FolderStore) -> dict[int, Result]:
    """Return the results of the finished runs, by their index in the plan."""
    results = ((i, store.result(planned.folder)) for i, planned in enumerate(plan))
    return {i: result for i, result in results if result is not None}


def study_frame(plan: list[PlannedRun], results: dict[int, Result]) -> pd.DataFrame:
    """Return a DataFrame with a row for each planned run, in the order of the plan."""
    names = _model_names(plan)
    rows = [
        _row(planned, names[planned.config.model], results.get(i)) for i, planned in enumerate(plan)
    ]
    return pd.DataFrame(rows, columns=[*PLANNED, *MEASURED])


def _model_names(plan: list[PlannedRun]) -> dict[str, str]:
    """Return the short name of each model, or its full name if another has the same short name."""
    names = {planned.config.model: planned.model_name for planned in plan}
    ambiguous = {name for name, count in Counter(names.values()).items() if count > 1}
    return {model: model if name in ambiguous else name for model, name in names.items()}


def _row(planned: PlannedRun, model: str, result: Result | None) -> dict[str, Any]:
    values = (
        planned.label, model, planned.task_name, planned.config.seed,
        planned.config.method, planned.folder, result is not None,
    )  # fmt: skip
    measured = {} if result is None else measured_fields(result)
    return dict(zip(PLANNED, values, strict=True)) | measured


def measured_fields(result: Result) -> dict[str, Any]:
    """Return the measured fields of a finished run."""
    return {name: getattr(result, name) for name in MEASURED}
