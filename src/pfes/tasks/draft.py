"""A task file written for a labelled file: everything in it can be edited."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pfes.contract import Family
from pfes.tasks.columns import Columns
from pfes.tasks.spec import MASK, TaskSpec
from pfes.tasks.templates import template_pool

FAMILIES: tuple[Family, ...] = ("causal", "masked")
COMMENTS = {
    "dataset": "a part of the file is held out for the test; `test_file` names another one",
    "label": "the column that holds the label",
    "templates": "how a text is put to a model: causal ones go on writing, masked ones fill {mask}",
    "verbalizers": "for each label the word that the model answers with, one token each",
}


@dataclass(frozen=True)
class Draft:
    """A task as it would be written, and the choices in it."""

    spec: TaskSpec
    columns: Columns
    losses: Mapping[str, float] = field(default_factory=dict)  # of templates that were tried

    def yaml(self) -> str:
        """Return the task file, with a comment over each part."""
        content = self.spec.model_dump(exclude_defaults=True, mode="json")
        names = ("name", "dataset", "label", "templates", "verbalizers")
        content = {name: content.get(name, self.spec.label) for name in names}
        lines = [f"# {_about(self.columns)}"]
        for name, value in content.items():
            if name in COMMENTS:
                lines.append(f"# {COMMENTS[name]}")
            if name == "templates":
                tried = self.losses.items()
                lines += [f"# tried: {_scalar(text)}, loss {loss:.3f}" for text, loss in tried]
            if isinstance(value, dict):
                lines.append(f"{name}:")
                lines += [f"  {_scalar(key)}: {_value(item)}" for key, item in value.items()]
            else:
                lines.append(f"{name}: {_value(value)}")
        return "\n".join(lines) + "\n"


def draft_task(
    path: Path, columns: Columns, folder: Path, words: dict[str, str] | None = None
) -> Draft:
    """Make a task for a labelled file; `folder` is where the task file will be.

    `words` are those of the labels; without them, the labels' own names.
    """
    names = {column: _identifier(column, i) for i, column in enumerate(columns.texts)}
    renamed = {name: column for column, name in names.items() if name != column}
    dataset: dict[str, Any] = {"file": os.path.relpath(path.resolve(), folder.resolve())}
    if renamed:
        dataset["columns"] = renamed
    if columns.empty:
        dataset["skip_empty"] = True
    fields = tuple(names.values())
    spec = TaskSpec.model_validate(
        {
            "name": re.sub(r"\W+", "-", path.stem).strip("-").lower() or "task",
            "dataset": dataset,
            "label": columns.label,
            "templates": {
                family: template_pool(fields, columns.label, family)[0] for family in FAMILIES
            },
            "verbalizers": words or {label: label for label in columns.labels},
        }
    )
    return Draft(spec, columns)


def _about(columns: Columns) -> str:
    counted = sorted(columns.labels.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label} {count}" for label, count in counted[:10])
    more = f" and {len(counted) - 10} more labels" if len(counted) > 10 else ""
    return f"{sum(columns.labels.values())} rows with text and label: {shown}{more}"


def _identifier(column: str, place: int) -> str:
    """Return a name that can stand in a template: the column's own where that is possible."""
    if column.isidentifier() and column != MASK:
        return column
    name = re.sub(r"\W+", "_", column).strip("_").lower()
    return name if name.isidentifier() and name != MASK else f"text{place + 1}"


def _scalar(value: Any) -> str:
    """Return a value as YAML takes it: text in quotes wherever it could be taken for another."""
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z][\w-]*", text) and text.lower() not in YAML_WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_value(v)}" for k, v in value.items()) + "}"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
