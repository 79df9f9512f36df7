"""Saved runs, in groups that differ in nothing but the seed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pfes.config import LOCATION, is_served
from pfes.errors import PfesError
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun
from pfes.studies.frame import measured_fields
from pfes.studies.plan import model_name

# besides the location settings: those in which a group's runs may differ, or that name the group
NOT_COMPARED = {"task", "method", "beta", "seed", "batch_tokens", "max_batch_tokens"}


@dataclass(frozen=True)
class Group:
    """Runs with the same model, task, method, β and other settings, and different seeds."""

    model: str
    task: str
    label: str  # method, β if it has one, and settings that tell similar groups apart
    settings: dict[str, Any]  # the other settings
    runs: tuple[SavedRun, ...]
    frame: pd.DataFrame  # a row for each run, with its seed, method and measured fields

    @property
    def name(self) -> tuple[str, str, str]:
        return self.label, self.task, self.model


def read_groups(paths: Iterable[Path]) -> list[Group]:
    """Read finished runs and group them, in the order given."""
    runs = pd.DataFrame([_row(SavedRun(path)) for path in paths])
    if runs.empty:
        raise PfesError("no runs given: name at least one run folder")
    keys = ["model", "task", "label", "key"]
    repeated = runs[runs.duplicated([*keys, "seed"], keep=False)]
    if not repeated.empty:
        first, second = (run.path for run in repeated["run"].iloc[:2])
        raise PfesError(f"{first} and {second} are the same run with the same seed: give one")
    groups = [
        Group(str(model), str(task), str(label), json.loads(key), tuple(frame["run"]), frame)
        for (model, task, label, key), frame in runs.groupby(keys, sort=False)
    ]
    return [_with_differences(group, groups) for group in groups]


def _row(run: SavedRun) -> dict[str, Any]:
    if not run.finished:
        raise PfesError(f"{run.path} is not a finished run: it has no {run.files.result.name}")
    result = run.result
    omitted = LOCATION | NOT_COMPARED | ({"model"} if is_served(result.model) else set())
    settings = {name: value for name, value in result.config.items() if name not in omitted}
    return {
        "run": run,
        "model": model_name(result.model, result.config.get("served_name")),
        "task": result.task,
        "label": _label(result),
        "key": json.dumps(settings, sort_keys=True),
        "seed": result.seed,
        "method": result.method,
        **measured_fields(result),
    }


def _label(result: Result) -> str:
    if result.config.get("beta") == "auto":
        return f"{result.method}, β auto"
    return result.method + ("" if result.beta is None else f", β = {result.beta:g}")


def _with_differences(group: Group, groups: Iterable[Group]) -> Group:
    """Return the group with settings added to its label that differ in groups of the same name."""
    same_name = [other.settings for other in groups if other.name == group.name]
    differences = [
        f", {setting} = {value}"
        for setting, value in group.settings.items()
        if any(other.get(setting) != value for other in same_name)
    ]
    label = group.label + "".join(differences)
    return Group(group.model, group.task, label, group.settings, group.runs, group.frame)
