"""The description of a study, and its expansion to runs."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pfes.config import (
    BETA,
    DEFAULT_METHOD,
    FORMER,
    LOCATION,
    SERVED,
    TEXT_ONLY,
    RunConfig,
    is_served,
    make_config,
    takes_only_text,
)
from pfes.errors import PfesError, SettingError
from pfes.methods import get_method, with_preset
from pfes.runs.check import check_settings
from pfes.system.yaml_file import read_yaml
from pfes.tasks.spec import validation_message

BUILTIN = Path(__file__).parent / "builtin"
SELECTORS = {"model", "task", "method"}  # an entry of `where` selects runs by these
FREE_ROWS = {  # what may be a row without a run of its own: its label, and its name in a result
    "constant answer": "constant",
    "template": "template",
    "template + offset": "template + offset",
    "template + reading": "template + reading",
    "examples in front": "examples",
    "examples in front + offset": "examples + offset",
    "examples in front + reading": "examples + reading",
    "best start": "start",
    "best start + offset": "start + offset",
    "best start + reading": "start + reading",
}


class StudyPart(BaseModel):
    """A part of a study: some of its rows on other models, tasks or seeds, with other settings.

    What is not given is the study's own. Parts of one name are reported together, under that name:
    so seeds that can wait may stand further down.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    models: list[str] | None = Field(None, min_length=1)
    tasks: list[str] | None = Field(None, min_length=1)
    seeds: list[int] | None = Field(None, min_length=1)
    rows: list[str] | None = Field(None, min_length=1, description="labels of the study's rows")
    leave_out: list[str] = Field([], description="labels of rows that this part does not have")
    settings: dict[str, Any] = Field({}, description="of every run of this part")

    @property
    def variant(self) -> str:
        """What is different here, as text that stands behind a task's name."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items())


class StudySpec(BaseModel):
    """A grid of runs: every row on every model, task and seed. It may have several parts."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[\w-][\w.-]*$", description="names the report's folder, too")
    title: str = ""
    defaults: dict[str, Any] = Field({}, description="settings of every run")
    models: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    seeds: list[int] = Field([0, 1, 42, 43, 100], min_length=1)
    rows: list[dict[str, Any]] = Field(
        min_length=1, description="what is compared: each row is a label and its settings"
    )
    extra_rows: list[dict[str, Any]] = Field(
        [], description="further rows, which are done only if they are asked for"
    )
    over: Literal["beta", "intrinsic_dimension", "sigma0"] | None = Field(
        None, description="draw the test metric over this setting, in which rows differ"
    )
    where: list[dict[str, Any]] = Field(
        [], description="settings of some runs, selected by model, task, method or several"
    )
    parts: list[StudyPart] = Field(
        [], description="grids of their own, in the order in which they are done [one grid]"
    )
    free: list[str] = Field(
        [], description="rows that need no run: the runs test them beside what they search"
    )
    ceiling: str | None = Field(
        None, description="label of the row that says how far a search could get"
    )
    compare: list[tuple[str, str]] = Field([], description="pairs of rows to compare [all of them]")

    @property
    def grids(self) -> list[StudyPart]:
        """The parts, or the whole study as the only one."""
        return self.parts or [StudyPart(name=self.name)]

    def on(self, **lists: list[Any]) -> "StudySpec":
        """Return the study with other models, tasks or seeds, in every part."""
        none = dict.fromkeys(lists)
        parts = [part.model_copy(update=none) for part in self.parts]
        return self.model_copy(update=lists | {"parts": parts})

    @model_validator(mode="after")
    def _check_names(self) -> "StudySpec":
        labels = {row_label(row) for row in self.rows}
        if not FREE_ROWS.keys() >= {*self.free}:
            raise ValueError(f"free: choose among {', '.join(FREE_ROWS)}")
        known = labels | {*self.free}
        asked = {
            "parts": [
                name for part in self.parts for name in (*(part.rows or ()), *part.leave_out)
            ],
            "ceiling": [self.ceiling] if self.ceiling else [],
            "compare": [name for pair in self.compare for name in pair],
        }
        for setting, names in asked.items():
            allowed = labels if setting != "compare" else known
            for name in names:
                if name not in allowed:
                    raise ValueError(f"{setting}: no row is called {name!r}")
        return self

    @model_validator(mode="after")
    def _check_rows(self) -> "StudySpec":
        labels = [*self.free, *(row_label(row) for row in self.rows + self.extra_rows)]
        repeated = next((label for label in labels if labels.count(label) > 1), None)
        if repeated is not None:
            raise ValueError(f"rows: two are called {repeated!r}; give them different labels")
        for entry in self.where:
            selected = [entry[name] for name in SELECTORS & entry.keys()]
            if not selected or not all(isinstance(name, str) for name in selected):
                raise ValueError(f"where: an entry needs one of {', '.join(sorted(SELECTORS))}")
        return self

    def with_extra_rows(self) -> "StudySpec":
        """Return the study with its further rows among the others."""
        return self.model_copy(update={"rows": self.rows + self.extra_rows, "extra_rows": []})

    def settings(self, row: dict[str, Any], model: str, task: str) -> dict[str, Any]:
        """Return the settings of a row on a model and task.

        The row's settings override those of `where`, which override the defaults; of several
        matching entries of `where`, the last one wins.
        """
        row_settings = {name: value for name, value in row.items() if name != "label"}
        method = (self.defaults | row_settings).get("method", DEFAULT_METHOD)
        names = {
            "model": (model, short_name(model)),
            "task": (task, short_name(task)),
            "method": (method,),
        }
        settings = with_preset(self.defaults, method)
        for entry in self.where:
            if all(entry[name] in names[name] for name in SELECTORS & entry.keys()):
                selected = {name: entry[name] for name in entry if name not in SELECTORS}
                settings |= with_preset(selected, method)
        return settings | with_preset(row_settings, method) | {"model": model, "task": task}


def short_name(name: str) -> str:
    """Return a model's or task's name without its folder, owner or `.yaml`."""
    return Path(name).name.removesuffix(".yaml")


def model_name(model: str, served_name: str | None) -> str:
    """Return a model's short name; for a served model, its `served_name` if that is given."""
    return short_name(served_name if served_name and is_served(model) else model)


def row_label(row: dict[str, Any]) -> str:
    """Return the name of a row: its label or, without one, its settings."""
    if "label" in row:
        return str(row["label"])
    return ", ".join(str(v) if k == "method" else f"{k} {v}" for k, v in row.items())


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study; `key` identifies its config, in whatever study it is."""

    label: str
    config: RunConfig
    key: str
    part: str = ""
    variant: str = ""  # what is different in this part: stands behind the task's name

    @property
    def model_name(self) -> str:
        """The model's name without folder or owner; for a served model, its `served_name`."""
        return model_name(self.config.model, self.config.served_name)

    @property
    def task_name(self) -> str:
        """The task's name without folder."""
        return short_name(self.config.task)

    @property
    def column(self) -> str:
        """The task's name, with what is different in this part of the study."""
        return f"{self.task_name}, {self.variant}" if self.variant else self.task_name

    @property
    def folder(self) -> str:
        """The name of the run folder, which is the same in every study that has this run."""
        parts = (self.config.method, self.model_name, self.task_name)
        text = "-".join([*parts, str(self.config.seed), self.key])
        return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in text)


def builtin_studies() -> dict[str, Path]:
    """Return the YAML files of the studies that come with pfes, by name."""
    return {path.stem: path for path in sorted(BUILTIN.glob("*.yaml"))}


def read_study_spec(name: str | Path) -> StudySpec:
    """Read a study by name or YAML file."""
    path = builtin_studies().get(str(name), Path(name))
    if path.suffix not in (".yaml", ".yml"):
        names = ", ".join(builtin_studies())
        raise PfesError(f"no study {str(name)!r}; give a YAML file or one of {names}")
    try:
        return StudySpec.model_validate(read_yaml(path, "study file"))
    except ValidationError as error:
        raise PfesError(f"study file {path}: {validation_message(error)}") from None


def plan_runs(spec: StudySpec, overrides: dict[str, Any]) -> list[PlannedRun]:
    """Return the runs of a study, part by part and seed by seed, so that cells soon have a value.

    `overrides`, such as those of the command line, override all other settings.
    """
    runs = []
    done = set()
    for part in spec.grids:
        for run in _runs_of(spec, part, overrides):
            name = (run.part, run.label, run.column, run.config.model, run.key)
            if name not in done:  # parts of one name may share runs
                done.add(name)
                runs.append(run)
    _check_models(runs)
    return runs


def _runs_of(spec: StudySpec, part: StudyPart, overrides: dict[str, Any]) -> Iterator[PlannedRun]:
    rows = [row for row in spec.rows if part.rows is None or row_label(row) in part.rows]
    rows = [row for row in rows if row_label(row) not in part.leave_out]
    places = product(part.seeds or spec.seeds, part.models or spec.models, part.tasks or spec.tasks)
    for (seed, model, task), row in product(places, rows):
        settings = spec.settings(row, model, task) | part.settings | {"seed": seed}
        if settings.get("trust_remote_code"):
            raise SettingError(
                "trust_remote_code",
                "this cannot be set in a file; give it as an option or argument",
            )
        config = make_config(**settings | overrides)
        # defaults and `where` may have settings of other methods; a row may not
        check_settings(config, row.keys() - {"label"})
        config = _with_beta(config)
        key = config_key(config)
        yield PlannedRun(row_label(row), config, key, part.name, part.variant)


def _check_models(runs: list[PlannedRun]) -> None:
    """Refuse two served models whose runs would be the same, as addresses do not identify a run."""
    models: dict[str, str] = {}
    for run in runs:
        first = models.setdefault(run.folder, run.config.model)
        if first != run.config.model:
            raise PfesError(
                f"{first} and {run.config.model} would share their runs, like two servers of one "
                "model: if they differ, give each its served_name in `where`"
            )


def _with_beta(config: RunConfig) -> RunConfig:
    """Return the config with its β, so that the default and the same β given are one run.

    A method without a regulariser has none, whatever the study's defaults say.
    """
    if not get_method(config.method).regularized:
        return config.model_copy(update={"beta": None})
    return config if config.beta is not None else config.model_copy(update={"beta": BETA})


def config_key(config: RunConfig) -> str:
    """Return a short hash of the settings that determine a run's result.

    Settings as they were before they could be set, or else at their defaults, are left out: so
    adding a setting to pfes does not change the keys of finished runs.
    """
    unset = RunConfig.model_construct(**FORMER).model_dump()
    settings = config.model_dump(exclude=set(LOCATION))
    content = {k: v for k, v in settings.items() if k not in unset or v != unset[k]}
    if is_served(config.model):
        # which servers answer does not change what the run is
        content["model"] = TEXT_ONLY if takes_only_text(config.model) else SERVED
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
