"""A task with its examples: what `load_task` returns."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from pfes.errors import PfesError
from pfes.seeds import stream
from pfes.tasks.data import Row, read_splits
from pfes.tasks.spec import TaskSpec, label_key, read_spec

T = TypeVar("T")

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
    pool = _examples(spec, train_rows, "training data")
    if test_rows is None:
        pool, test = _hold_out(pool, spec.dataset.holdout)
    else:
        test = _examples(spec, test_rows, "test data")
    if not test:
        raise PfesError(f"task {spec.name!r}: the test data has no examples")
    train, validation = few_shot(spec, pool, shots, seed)
    if test_limit is not None and test_limit < len(test):
        order = stream(FIXED_SEED, "test-limit").permutation(len(test))[:test_limit]
        test = [test[i] for i in np.sort(order)]
    return Task(spec, tuple(train), tuple(validation), tuple(test), shots, seed)


def few_shot(
    spec: TaskSpec, pool: list[Example], shots: int, seed: int
) -> tuple[list[Example], list[Example]]:
    """Draw `shots` training and `shots` other validation examples of each class."""
    classes = [[example for example in pool if example.label == i] for i in range(len(spec.labels))]
    scarcest = min(range(len(classes)), key=lambda i: len(classes[i]))
    count = len(classes[scarcest])
    if count < 2 * shots:
        raise PfesError(
            f"task {spec.name!r}: label {spec.labels[scarcest]!r} has {count} examples to draw "
            f"from, {2 * shots} are needed ({shots} to train on, {shots} to validate): "
            + (f"use --shots {count // 2} or add data" if count > 1 else "add data")
        )
    rng = stream(seed, "few-shot")
    train: list[Example] = []
    validation: list[Example] = []
    for members in classes:
        order = rng.permutation(len(members))
        train += [members[i] for i in order[:shots]]
        validation += [members[i] for i in order[shots : 2 * shots]]
    return train, validation


def _examples(spec: TaskSpec, rows: Iterable[Row], source: str) -> list[Example]:
    index = {label: i for i, label in enumerate(spec.labels)}
    examples = []
    for number, row in enumerate(rows, start=1):
        if any(label_key(row.get(column, "")) != v for column, v in spec.dataset.where.items()):
            continue
        place = f"task {spec.name!r}, {source}, row {number}"
        fields = {}
        for column in (*spec.fields, spec.label):
            if row.get(column) is None:
                raise PfesError(
                    f"{place}: no {column!r}; its columns are "
                    f"{', '.join(str(key) for key in row if key is not None)}"
                )
        fields = {column: str(row[column]) for column in spec.fields}
        if not any(text.strip() for text in fields.values()):
            raise PfesError(f"{place}: empty text in {', '.join(spec.fields)}")
        label = label_key(row[spec.label])
        if label not in index:
            raise PfesError(
                f"{place}: label {label!r} has no word; "
                f"verbalizers has words for {', '.join(spec.labels)}"
            )
        examples.append(Example(fields, index[label]))
    return examples


def _hold_out(pool: list[T], part: float) -> tuple[list[T], list[T]]:
    order = stream(FIXED_SEED, "hold-out").permutation(len(pool))
    count = round(part * len(pool))
    return [pool[i] for i in np.sort(order[count:])], [pool[i] for i in np.sort(order[:count])]
