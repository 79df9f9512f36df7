"""The runs of a study as one table: a row for each planned run, finished or not."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd

from pfes.runs.result import FreeResult, Result
from pfes.studies.plan import FREE_ROWS, PlannedRun
from pfes.studies.store import FolderStore

# columns of every run, and columns that are missing until a run has finished
PLANNED = ("row", "model", "task", "seed", "method", "folder", "finished", "part", "shots")
MEASURED = (
    "metric", "test", "zero_shot", "initial", "validation", "train_loss", "initial_train_loss",
    "evaluations", "selected_at", "seconds_per_evaluation", "beta", "probability", "rank",
    "test_examples", "auc", "best_free", "over_free", "constant", "train_ce", "right",
    "sentence_evaluations",
)  # fmt: skip
PLACE = ("part", "model", "task", "seed", "shots")  # what is free is the same in all runs of one
ECE = "ece"
INTERVAL = ("low", "high")  # of the metric, by bootstrap over the test examples
NO_SEARCH = "manual"  # as the method of what is free


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
    return pd.DataFrame(rows, columns=[*PLANNED, *MEASURED, ECE, *INTERVAL])


def with_free_rows(
    frame: pd.DataFrame, results: dict[int, Result], labels: list[str]
) -> pd.DataFrame:
    """Return the frame behind rows of what costs no search, which the runs have tested beside it.

    Each stands once for a part, model, task and seed; it is finished when the first run is that
    has it.
    """
    if not labels:
        return frame
    found: dict[tuple[Any, ...], FreeResult] = {}
    metrics: dict[tuple[Any, ...], Result] = {}
    places = {i: tuple(frame.loc[i, list(PLACE)]) for i in frame.index}
    for i, result in results.items():
        metrics.setdefault(places[i], result)
        for name, free in _free_by_name(result):
            found.setdefault((*places[i], name), free)
    rows = []
    for place in dict.fromkeys(places.values()):
        planned = dict(zip(PLACE, place, strict=True))
        for label in labels:
            row = planned | {"row": label, "method": NO_SEARCH, "folder": ""}
            free_result = found.get((*place, FREE_ROWS[label]))
            row["finished"] = free_result is not None
            if free_result is not None:
                row |= _free_fields(free_result, metrics[place])
            rows.append(row)
    # free rows have numbers of their own, behind those of the plan
    index = range(len(frame), len(frame) + len(rows))
    free_frame = pd.DataFrame(rows, columns=frame.columns, index=index)
    return pd.concat([free_frame.astype(object), frame.astype(object)])


def _free_by_name(result: Result) -> Iterator[tuple[str, FreeResult]]:
    """Yield what was free by its name; where nothing in front was best, that is the best start."""
    names = {free.name for free in result.free}
    for free in result.free:
        yield free.name, free
        if result.began_free and "start" not in names and free.name.startswith("template"):
            yield free.name.replace("template", "start", 1), free


def _free_fields(free: FreeResult, result: Result) -> dict[str, Any]:
    names = ("test", "auc", "probability", "rank", "train_ce", "right", ECE)
    same = {name: getattr(result, name) for name in ("metric", "zero_shot", "test_examples")}
    nothing = {"evaluations": 0, "sentence_evaluations": 0}
    bounds = dict(zip(INTERVAL, free.interval, strict=True))
    return same | nothing | bounds | {name: getattr(free, name) for name in names}


def _model_names(plan: list[PlannedRun]) -> dict[str, str]:
    """Return the short name of each model, or its full name if another has the same short name."""
    names = {planned.config.model: planned.model_name for planned in plan}
    ambiguous = {name for name, count in Counter(names.values()).items() if count > 1}
    return {model: model if name in ambiguous else name for model, name in names.items()}


def _row(planned: PlannedRun, model: str, result: Result | None) -> dict[str, Any]:
    values = (
        planned.label, model, planned.column, planned.config.seed, planned.config.method,
        planned.folder, result is not None, planned.part, planned.config.shots,
    )  # fmt: skip
    measured = {} if result is None else measured_fields(result)
    return dict(zip(PLANNED, values, strict=True)) | measured


def measured_fields(result: Result) -> dict[str, Any]:
    """Return the measured fields of a finished run."""
    return {name: getattr(result, name) for name in MEASURED} | dict(_further_fields(result))


def _further_fields(result: Result) -> Iterator[tuple[str, float]]:
    judged = (result.calibration or {}).get("read")
    if judged is not None:
        yield ECE, judged.ece
    yield from zip(INTERVAL, (result.intervals or {}).get("test", ()), strict=False)
