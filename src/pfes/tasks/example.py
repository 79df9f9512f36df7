"""An example of a task, and the texts of examples given in Python."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfes.errors import PfesError

UNKNOWN = -1  # in place of a label


@dataclass(frozen=True)
class Example:
    """The text fields of one example and its label, an index into the task's labels."""

    fields: dict[str, str]
    label: int

    @property
    def is_empty(self) -> bool:
        return not any(text.strip() for text in self.fields.values())


def is_missing(value: object) -> bool:
    """Say whether a value of a row is none: not there, not a number, or blank."""
    return value is None or value != value or not str(value).strip()


def as_text(value: object) -> str:
    """Return a value as valid Unicode text: JSON may hold unpaired surrogates."""
    return str(value).encode("utf-8", "replace").decode()


def field_names(texts: Any) -> tuple[str, ...]:
    """Return names for the parts of texts given in Python: those that they have, or others."""
    columns = getattr(texts, "columns", None)
    if columns is not None:
        return tuple(map(str, columns))
    name = getattr(texts, "name", None)  # a column of a DataFrame
    first = next(iter(texts), "")
    if isinstance(first, Mapping):
        return tuple(map(str, first))
    if isinstance(first, str):
        return (str(name),) if name is not None and str(name).isidentifier() else ("text",)
    return tuple(f"text{i + 1}" for i in range(len(first))) if isinstance(first, Sequence) else ()


def text_fields(texts: Any, names: Sequence[str]) -> list[dict[str, str]]:
    """Return texts given in Python as fields by name, a dictionary for each text.

    A text is a string; for several fields, a mapping by name or a sequence in the order of `names`.
    A DataFrame is read row by row, its columns by name.
    """
    if isinstance(texts, str):
        raise PfesError("texts must be a list; put a single text into a list")
    if hasattr(texts, "to_dict") and hasattr(
        texts, "columns"
    ):  # a DataFrame, without importing pandas
        texts = texts.to_dict("records")
    return [_fields(text, names) for text in texts]


def _fields(text: Any, names: Sequence[str]) -> dict[str, str]:
    if isinstance(text, str):
        values: Iterable[Any] = [text]
    elif isinstance(text, Mapping):
        values = [text.get(name) for name in names]
    elif isinstance(text, Sequence | np.ndarray):
        values = list(text)
    else:
        raise PfesError(f"a text must be a string, a mapping or a sequence, not {text!r:.50}")
    parts = [as_text(value) for value in values if value is not None and value == value]
    if len(parts) != len(names):
        raise PfesError(
            f"a text has {len(parts)} parts, but this task needs {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, parts, strict=True))
