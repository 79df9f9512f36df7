"""A task with its examples: what `load_task` returns."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.errors import PfesError
from pfes.seeds import stream
from pfes.tasks.data import Row, Rows, read_splits
from pfes.tasks.spec import TaskSpec, label_key, read_spec

Places: TypeAlias = NDArray[np.int64]

DEFAULT_SHOTS = 16  # per class, as in the paper
FIXED_SEED = 0  # the held-out part and its order are the same for every run seed


@dataclass(frozen=True)
class Example:
    """The text fields of one example and its label, an index into the task's labels."""

    fields: dict[str, str]
    label: int


@dataclass(frozen=True)
class Task:
    """A task with a few labelled examples to search on and held-out ones to judge by."""

    spec: TaskSpec
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]
    shots: int
    seed: int

    @property
    def name(self) -> str:
        return self.spec.name


def as_text(value: object) -> str:
    """Return a value as text that every encoding takes: JSON may have halves of characters."""
    return str(value).encode("utf-8", "replace").decode()


def load_task(
    name: str | Path,
    shots: int = DEFAULT_SHOTS,
    seed: int = 0,
    data_dir: str | Path | None = None,
    test_limit: int | None = None,
) -> Task:
    """Load a task by name or YAML file, with `shots` examples per class drawn by `seed`.

    As many again, others, are drawn for validation. `test_limit` keeps that many test examples,
    a random choice that is the same for every seed.
    """
    spec, base = read_spec(name)
    folder = None if data_dir is None else Path(data_dir)
    train_rows, test_rows = read_splits(spec.name, spec.dataset, base, folder)
    training = _Split(spec, train_rows, f"task {spec.name!r}, training data")
    if test_rows is None:
        pool, held_out = _hold_out(len(training), spec.dataset.holdout)
        testing = training
    else:
        testing = _Split(spec, test_rows, f"task {spec.name!r}, test data")
        pool, held_out = np.arange(len(training)), np.arange(len(testing))
    if not len(held_out):
        raise PfesError(f"task {spec.name!r}: the test data has no examples")
    train, validation = few_shot(spec, training.labels[pool], shots, seed)
    if test_limit is not None and test_limit < len(held_out):
        order = stream(FIXED_SEED, "test-limit").permutation(len(held_out))[:test_limit]
        held_out = held_out[np.sort(order)]
    parts = [pool[train], pool[validation]]
    if testing is training:
        own, others, test = training.take(*parts, held_out)
    else:
        own, others = training.take(*parts)
        (test,) = testing.take(held_out)
    return Task(spec, own, others, test, shots, seed)


def few_shot(spec: TaskSpec, labels: Places, shots: int, seed: int) -> tuple[Places, Places]:
    """Draw `shots` training and `shots` other validation examples of each class, as places."""
    classes = [np.flatnonzero(labels == i) for i in range(len(spec.labels))]
    scarcest = min(range(len(classes)), key=lambda i: len(classes[i]))
    count = len(classes[scarcest])
    if count < 2 * shots:
        raise PfesError(
            f"task {spec.name!r}: label {spec.labels[scarcest]!r} has {count} examples to draw "
            f"from, {2 * shots} are needed ({shots} to train on, {shots} to validate): "
            + (f"use --shots {count // 2} or add data" if count > 1 else "add data")
        )
    rng = stream(seed, "few-shot")
    train, validation = [], []
    for members in classes:
        drawn = members[rng.permutation(len(members))[: 2 * shots]]
        train.append(drawn[:shots])
        validation.append(drawn[shots:])
    return np.concatenate(train), np.concatenate(validation)


class _Split:
    """The rows of a split, read twice: for the labels of all, then for the few that are needed."""

    def __init__(self, spec: TaskSpec, rows: Rows, source: str) -> None:
        self._spec, self._rows, self._source = spec, rows, source
        self._index = {label: i for i, label in enumerate(spec.labels)}
        self.labels = np.array(array("i", (label for _, label in self._checked())), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, *parts: Places) -> list[tuple[Example, ...]]:
        """Return the examples at places, for each list of places in its order."""
        wanted = set(np.concatenate(parts).tolist())
        found = {
            i: Example({column: as_text(row[column]) for column in self._spec.fields}, label)
            for i, (row, label) in enumerate(self._checked())
            if i in wanted
        }
        try:
            return [tuple(found[i] for i in part.tolist()) for part in parts]
        except KeyError:
            raise PfesError(f"{self._source}: it changed while it was read") from None

    def _checked(self) -> Iterator[tuple[Row, int]]:
        """Yield the rows that count, each with its label."""
        fields, column, where = self._spec.fields, self._spec.label, self._spec.dataset.where
        for number, row in enumerate(self._rows(), start=1):
            if where and any(label_key(row.get(name, "")) != v for name, v in where.items()):
                continue
            given = row.get(column)
            label = None if given is None else self._index.get(label_key(given))
            texts = [row.get(name) for name in fields]
            if label is None or None in texts or not any(str(text).strip() for text in texts):
                raise PfesError(f"{self._source}, row {number}: {self._trouble(row)}")
            yield row, label

    def _trouble(self, row: Row) -> str:
        """Say what is wrong with a row."""
        spec = self._spec
        for column in (*spec.fields, spec.label):
            if row.get(column) is None:
                columns = ", ".join(str(key) for key in row if key is not None)
                return f"no {column!r}; its columns are {columns}"
        label = label_key(row[spec.label])
        if label not in self._index:
            words = ", ".join(spec.labels)
            return f"label {label!r} has no word; verbalizers has words for {words}"
        return f"empty text in {', '.join(spec.fields)}"


def _hold_out(count: int, part: float) -> tuple[Places, Places]:
    order = stream(FIXED_SEED, "hold-out").permutation(count)
    held_out = round(part * count)
    return np.sort(order[held_out:]), np.sort(order[:held_out])
