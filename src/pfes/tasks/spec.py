"""The description of a task: the schema of its YAML file, and its checks."""

from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pfes.contract import Family
from pfes.errors import PfesError, SettingError
from pfes.system.yaml_file import read_yaml

MetricName = Literal["accuracy", "f1", "matthews"]

MASK = "mask"  # the placeholder for the model's mask token
BUILTIN = Path(__file__).parent / "builtin"


def label_key(value: object) -> str:
    """Return a label's normal spelling: 1, 1.0, "1" and " 1 " are all the label "1"."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


class DatasetSpec(BaseModel):
    """Where the examples come from: a file, the Hub, or the embedded data."""

    model_config = ConfigDict(extra="forbid")

    file: str | None = Field(None, description="CSV, TSV, JSONL or Parquet, relative to the YAML")
    test_file: str | None = Field(
        None, description="test data; without it a part of `file` is held out"
    )
    hub: str | None = Field(None, description="data set on the Hugging Face Hub")
    config: str | None = Field(None, description="the Hub data set's configuration")
    embedded: str | None = Field(None, description="data that comes with pfes")
    local: bool = Field(False, description="no source of its own: the folder of --data-dir has it")
    train: str = Field("train", description="name of the training split (Hub, --data-dir)")
    test: str | None = Field(None, description="name of the test split (Hub, --data-dir)")
    columns: dict[str, str] = Field(
        {}, description="the column of a placeholder, where it has another name"
    )
    where: dict[str, str] = Field({}, description="keep only rows with these values")
    skip_empty: bool = Field(False, description="leave out rows without a text or a label")
    holdout: float = Field(0.2, gt=0, lt=1, description="part held out if there is no test set")

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetSpec":
        if sum(map(bool, (self.file, self.hub, self.embedded, self.local))) != 1:
            raise ValueError("give exactly one of file, hub, embedded, local")
        return self


def _label_keys(value: Any) -> Any:
    return {label_key(k): v for k, v in value.items()} if isinstance(value, dict) else value


class TaskSpec(BaseModel):
    """A classification task, described by templates and verbalizer words."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    description: str = ""
    dataset: DatasetSpec | None = Field(
        None, description="where the examples are; None for a task made in Python"
    )
    label: str = Field("label", description="the column that holds the label")
    templates: dict[Family, str] = Field(min_length=1)
    verbalizers: Annotated[dict[str, str], BeforeValidator(_label_keys)] = Field(min_length=2)
    demonstrations: tuple[str, ...] = Field(
        (), description="answered examples before the template; cut first if the text is too long"
    )
    metric: MetricName = "accuracy"
    positive: Annotated[str | None, BeforeValidator(lambda v: v if v is None else label_key(v))] = (
        Field(None, description="the positive class of f1 [the last label]")
    )

    @model_validator(mode="after")
    def _checks(self) -> "TaskSpec":
        for family, template in self.templates.items():
            check_template(family, template)
        if any(not word.strip() for word in self.verbalizers.values()):
            raise ValueError("verbalizers: a word is empty")
        if self.positive is not None and self.positive not in self.verbalizers:
            raise ValueError(f"positive: label {self.positive!r} has no verbalizer")
        if self.metric == "f1" and len(self.verbalizers) != 2:
            raise ValueError("metric: f1 needs exactly two labels")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the verbalizers; an example's label is an index into them."""
        return tuple(self.verbalizers)

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that the templates use."""
        names = (name for template in self.templates.values() for name in placeholders(template))
        return tuple(dict.fromkeys(name for name in names if name != MASK))

    def column(self, field: str) -> str:
        """Return the column that holds a field of the templates."""
        return field if self.dataset is None else self.dataset.columns.get(field, field)

    def template(self, family: Family) -> str:
        """Return the template for a family of models."""
        if family not in self.templates:
            raise PfesError(
                f"task {self.name!r} has no template for {family} models: add templates.{family}"
            )
        return self.templates[family]


def placeholders(template: str) -> list[str]:
    """Return the names in braces, in the order of the template."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def check_template(family: Family, template: str) -> None:
    """Say in a `ValueError` what is wrong with a template."""
    setting = f"templates.{family}"
    try:
        names = placeholders(template)
    except ValueError as error:
        raise ValueError(f"{setting}: {error} in {template!r}") from None
    formatted = any(
        format_spec or conversion for _, _, format_spec, conversion in Formatter().parse(template)
    )
    if formatted or any(not name.isidentifier() for name in names):
        raise ValueError(f"{setting}: a placeholder must be the name of a column, such as {{text}}")
    if not any(name != MASK for name in names):
        raise ValueError(
            f"{setting}: no placeholder for the text, such as {{text}}, in {template!r}"
        )
    if family == "masked" and names.count(MASK) != 1:
        raise ValueError(f"{setting}: needs exactly one {{mask}}, has {names.count(MASK)}")
    if family == "causal" and MASK in names:
        raise ValueError(f"{setting}: remove {{mask}}, which causal models do not have")


def builtin_tasks() -> dict[str, Path]:
    """Return the YAML files of the tasks that come with pfes, by name."""
    return {path.stem: path for path in sorted(BUILTIN.glob("*.yaml"))}


def read_spec(name: str | Path) -> tuple[TaskSpec, Path]:
    """Read a task by name or YAML file; return it and the folder its paths are relative to."""
    path = builtin_tasks().get(str(name), Path(name))
    if path.suffix not in (".yaml", ".yml"):
        raise SettingError(
            "task", f"no {str(name)!r}; give a YAML file or one of {', '.join(builtin_tasks())}"
        )
    try:
        spec = TaskSpec.model_validate(read_yaml(path, "task file"))
    except ValidationError as error:
        raise PfesError(f"task file {path}: {validation_message(error)}") from None
    if spec.dataset is None:
        raise PfesError(f"task file {path}: dataset: Field required")
    return spec, path.parent


def validation_message(error: ValidationError) -> str:
    """Return pydantic's first error as one line."""
    first = error.errors()[0]
    if first["type"] == "too_short" and first["loc"] == ("verbalizers",):
        return "verbalizers: there must be at least two labels"
    setting = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{setting}: {message}" if setting else message
