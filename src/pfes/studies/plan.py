"""A study as data: defaults plus what differs, expanded to runs."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pfes.config import BETA, DEFAULT_METHOD, PLACE, RunConfig, make_config
from pfes.errors import PfesError
from pfes.methods import get_method
from pfes.models.client import PREFIX, is_served
from pfes.tasks.spec import validation_message
from pfes.yaml_file import read_yaml

CHOICES = {"model", "task", "method"}  # what an entry of `where` chooses runs by


class StudySpec(BaseModel):
    """A grid of runs: every row on every model, task and seed."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[\w-][\w.-]*$", description="of its report's folder, too")
    title: str = ""
    defaults: dict[str, Any] = Field({}, description="settings of every run")
    models: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    seeds: list[int] = Field([0, 1, 42, 43, 100], min_length=1)
    rows: list[dict[str, Any]] = Field(
        min_length=1, description="what is compared: a label, and settings that differ"
    )
    where: list[dict[str, Any]] = Field(
        [], description="settings of some runs: of a model, a task, a method, or several of these"
    )

    @model_validator(mode="after")
    def _labels(self) -> "StudySpec":
        labels = [row_label(row) for row in self.rows]
        double = next((label for label in labels if labels.count(label) > 1), None)
        if double is not None:
            raise ValueError(f"rows: two are called {double!r}; give them labels")
        for place in self.where:
            chosen = [place[name] for name in CHOICES & place.keys()]
            if not chosen or not all(isinstance(name, str) for name in chosen):
                raise ValueError(f"where: an entry names its {', '.join(sorted(CHOICES))}")
        return self

    def settings(self, row: dict[str, Any], model: str, task: str) -> dict[str, Any]:
        """Return the settings of a row on a model and task.

        The row's own stand over those of `where`, of which the later win, those over the defaults.
        """
        own = {name: value for name, value in row.items() if name != "label"}
        method = (self.defaults | own).get("method", DEFAULT_METHOD)
        run = {
            "model": (model, short_name(model)),
            "task": (task, short_name(task)),
            "method": (method,),
        }
        found = dict(self.defaults)
        for place in self.where:
            if all(place[name] in run[name] for name in CHOICES & place.keys()):
                found |= {name: value for name, value in place.items() if name not in CHOICES}
        return found | own | {"model": model, "task": task}


def short_name(name: str) -> str:
    """Return a model's or task's name without its folder, owner or `.yaml`."""
    return Path(name).name.removesuffix(".yaml")


def model_name(model: str, served_name: str | None) -> str:
    """Return a model's short name; of a served one, what its server calls it, if that was said."""
    return short_name(served_name if served_name and is_served(model) else model)


def row_label(row: dict[str, Any]) -> str:
    """Return what a row is called: its label, or its settings."""
    if "label" in row:
        return str(row["label"])
    return ", ".join(str(v) if k == "method" else f"{k} {v}" for k, v in row.items())


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study; `key` identifies its config, whatever the study is called."""

    label: str
    config: RunConfig
    key: str

    @property
    def model_name(self) -> str:
        """The model without its folder or owner; of a served one, what its server calls it."""
        return model_name(self.config.model, self.config.served_name)

    @property
    def task_name(self) -> str:
        """The task without its folder."""
        return short_name(self.config.task)

    @property
    def folder(self) -> str:
        """The name of its run folder: the same in every study that has this run."""
        parts = (self.config.method, self.model_name, self.task_name)
        text = "-".join([*parts, str(self.config.seed), self.key])
        return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in text)


def read_study(path: str | Path) -> StudySpec:
    """Read a study's YAML file."""
    try:
        return StudySpec.model_validate(read_yaml(Path(path), "study file"))
    except ValidationError as error:
        raise PfesError(f"study file {path}: {validation_message(error)}") from None


def plan_runs(spec: StudySpec, overrides: dict[str, Any]) -> list[PlannedRun]:
    """Return the runs of a study, seed by seed, so that every cell soon has something to show.

    `overrides`, which come from the command line, stand over all other settings.
    """
    runs = []
    for seed in spec.seeds:
        for model in spec.models:
            for task in spec.tasks:
                for row in spec.rows:
                    settings = spec.settings(row, model, task) | {"seed": seed}
                    if settings.get("trust_remote_code"):
                        raise PfesError("--trust-remote-code is given on the command line alone")
                    config = _with_beta(make_config(**settings | overrides))
                    runs.append(PlannedRun(row_label(row), config, config_key(config)))
    _check_models(runs)
    return runs


def _check_models(runs: list[PlannedRun]) -> None:
    """Refuse two served models that would be one: addresses are no part of what a run is."""
    models: dict[str, str] = {}
    for run in runs:
        known = models.setdefault(run.folder, run.config.model)
        if known != run.config.model:
            raise PfesError(
                f"{known} and {run.config.model} would have the same runs, as servers of one "
                "model: tell them apart by served_name, in `where`"
            )


def _with_beta(config: RunConfig) -> RunConfig:
    """Return a config that names its β, so that the default and the same β given are one run."""
    given = config.beta is not None or not get_method(config.method).regularized
    return config if given else config.model_copy(update={"beta": BETA})


def config_key(config: RunConfig) -> str:
    """Return a short hash of what a run is a function of.

    Settings at their defaults are no part of it, so that a setting that pfes learns later does not
    make every finished run another one.
    """
    content = config.model_dump(exclude=set(PLACE), exclude_defaults=True)
    if is_served(config.model):
        content["model"] = PREFIX  # which servers answer is a matter of place
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
