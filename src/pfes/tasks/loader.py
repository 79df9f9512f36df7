"""Load a task with its examples, by its name or YAML file."""

from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from pfes.config import DEFAULT_SHOTS, Balance, RunConfig, Shots
from pfes.contract import Ints
from pfes.errors import PfesError, SettingError
from pfes.tasks.data import HubSplit, Row, Rows, load_hub_split, read_splits
from pfes.tasks.duplicates import not_among, text_hash
from pfes.tasks.example import Example, as_text, is_missing
from pfes.tasks.spec import TaskSpec, label_key, read_spec
from pfes.tasks.split import checked_balance, few_shot, hold_out, label_shares, limit_test
from pfes.tasks.task import Task
from pfes.tasks.texts import read_texts

UNLABELLED = 1000  # texts without labels, at most: what more of them bring is small
READ_UNLABELLED = 100_000  # rows of their file, at most


def load_task(
    name: str | Path,
    shots: Shots = DEFAULT_SHOTS,
    seed: int = 0,
    data_dir: str | Path | None = None,
    test_limit: int | None = None,
    unlabelled: str | Path | None = None,
    balance: Balance | None = None,
    test_seed: int = 0,
) -> Task:
    """Load a task by name or YAML file, with `shots` training examples per class.

    As many other examples are drawn for validation; `seed` determines both. If `shots` is "all",
    half of each class is for training and half for validation. `balance` says what is drawn where
    classes differ in size: "equal", "most" or "natural". Texts that are also in the test data are
    never drawn. At most `test_limit` test examples are used, chosen at random by `test_seed`, which
    is the same for every `seed`. `unlabelled` is a file of further texts, of which at most a
    thousand are used.
    """
    balance = checked_balance(shots, balance)
    spec, base = read_spec(name)
    assert spec.dataset is not None  # `read_spec` requires one
    where = spec.dataset.where
    folder = None if data_dir is None else Path(data_dir)
    train_rows, test_rows = read_splits(spec.name, spec.dataset, base, folder)
    training = _split(spec, where, train_rows, f"task {spec.name!r}, training data")
    if test_rows is None:
        pool, held_out = hold_out(len(training), spec.dataset.holdout)
        testing = training
    else:
        testing = _split(spec, where, test_rows, f"task {spec.name!r}, test data")
        pool, held_out = np.arange(len(training)), np.arange(len(testing))
    if not len(held_out):
        raise PfesError(f"task {spec.name!r}: the test data has no examples")
    labels = training.labels[pool]
    # compared with all that is held out, so that a limit of the test does not change what is drawn
    usable = not_among(training.hashes[pool], testing.hashes[held_out])
    train, validation = few_shot(spec.name, spec.labels, labels, shots, seed, balance, usable)
    held_out = limit_test(held_out, test_limit, test_seed)
    parts = [pool[train], pool[validation]]
    if testing is training:
        train_examples, validation_examples, test_examples = training.take(*parts, held_out)
    else:
        train_examples, validation_examples = training.take(*parts)
        (test_examples,) = testing.take(held_out)
    return Task(
        spec,
        train_examples,
        validation_examples,
        test_examples,
        shots,
        seed,
        label_shares(labels, len(spec.labels)),
        () if unlabelled is None else _read_unlabelled(spec, Path(unlabelled)),
        balance,
        dropped=len(pool) - int(usable.sum()),
    )


def _read_unlabelled(spec: TaskSpec, path: Path) -> tuple[Example, ...]:
    """Return at most `UNLABELLED` texts of a file, evenly over all of it as far as it is read."""
    rows = (example for _, example in read_texts(spec, path, "unlabelled"))
    texts = [example for example in islice(rows, READ_UNLABELLED) if not example.is_empty]
    if not texts:
        raise SettingError("unlabelled", f"{path} has no texts")
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), UNLABELLED)).round()
    return tuple(texts[int(i)] for i in chosen)


def load_run_task(config: RunConfig) -> Task:
    """Load the task of a run, split as the run's config says."""
    return load_task(
        config.task,
        config.shots,
        config.seed,
        data_dir=config.data_dir,
        test_limit=config.test_limit,
        unlabelled=config.unlabelled,
        balance=config.balance,
        test_seed=config.limit_seed,
    )


_on_hub: dict[tuple[HubSplit, str], "_Split"] = {}  # what was read of the Hub in this process


def _split(spec: TaskSpec, where: dict[str, str], rows: Rows, source: str) -> "_Split":
    """Return a split's labels; one on the Hub is read once, whatever the runs draw from it."""
    if not isinstance(rows, HubSplit):
        return _Split(spec, where, rows, source)
    key = (rows, spec.model_dump_json())
    if key not in _on_hub:
        _on_hub[key] = _Split(spec, where, rows, source)
    return _on_hub[key]


def forget_splits() -> None:
    """Read data on the Hub again when it is next needed."""
    _on_hub.clear()
    load_hub_split.cache_clear()


class _Split:
    """The rows of a split, read twice to save memory: for all labels, then for a few examples.

    Where rows can be had by their number, they are read once.
    """

    def __init__(self, spec: TaskSpec, where: dict[str, str], rows: Rows, source: str) -> None:
        self._spec, self._where, self._rows, self._source = spec, where, rows, source
        self._index = {label: i for i, label in enumerate(spec.labels)}
        numbers, labels, hashes = array("q"), array("i"), array("q")
        columns = [spec.column(name) for name in spec.fields]
        for number, row, label in self._checked():
            numbers.append(number)
            labels.append(label)
            hashes.append(text_hash(row[column] for column in columns))
        self._numbers: Ints = np.frombuffer(numbers, dtype=np.int64)  # of the rows that count
        self.labels: Ints = np.array(labels, dtype=np.int64)
        self.hashes: Ints = np.frombuffer(hashes, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, *parts: Ints) -> list[tuple[Example, ...]]:
        """Return the examples at the given indices, one tuple for each array of indices."""
        wanted = sorted(set(np.concatenate(parts).tolist()))
        examples = {i: self._example(row, label) for i, row, label in self._chosen(wanted)}
        try:
            return [tuple(examples[i] for i in part.tolist()) for part in parts]
        except KeyError:
            raise PfesError(
                f"{self._source}: the data changed while it was read; try again"
            ) from None

    def _chosen(self, wanted: list[int]) -> Iterator[tuple[int, Row, int]]:
        """Yield the rows at some indices, which ascend, each with its index and its label's."""
        if isinstance(self._rows, HubSplit):
            rows = self._rows.rows(self._numbers[wanted].tolist())
            yield from zip(wanted, rows, self.labels[wanted].tolist(), strict=True)
            return
        among = set(wanted)
        for i, (_, row, label) in enumerate(self._checked()):
            if i in among:
                yield i, row, label

    def _example(self, row: Row, label: int) -> Example:
        spec = self._spec
        return Example({name: as_text(row[spec.column(name)]) for name in spec.fields}, label)

    def _checked(self) -> Iterator[tuple[int, Row, int]]:
        """Check and yield the rows that match `where`, with their numbers and their labels'."""
        columns = [self._spec.column(name) for name in self._spec.fields]
        column, where = self._spec.label, self._where
        skip_empty = self._spec.dataset is not None and self._spec.dataset.skip_empty
        empty: tuple[int, Row] | None = None
        found = False
        for number, row in enumerate(self._rows(), start=1):
            if where and any(label_key(row.get(name, "")) != v for name, v in where.items()):
                continue
            value = row.get(column)
            texts = [row.get(column) for column in columns]
            if skip_empty and any(map(is_missing, (value, *texts))):
                empty = empty or (number, row)
                continue
            label = None if value is None else self._index.get(label_key(value))
            if label is None or None in texts or not any(str(text).strip() for text in texts):
                raise PfesError(f"{self._source}, row {number}: {self._problem(row)}")
            found = True
            yield number - 1, row, label
        if empty is not None and not found:  # a column's name may be wrong
            number, row = empty
            raise PfesError(
                f"{self._source}: no row has both a text and a label; row {number}: "
                f"{self._problem(row)}"
            )

    def _problem(self, row: Row) -> str:
        """Return what is wrong with a row."""
        spec = self._spec
        texts = [spec.column(name) for name in spec.fields]
        for column in (*texts, spec.label):
            if row.get(column) is None:
                columns = ", ".join(str(key) for key in row if key is not None)
                return f"no value for {column!r}; its columns are {columns}"
        label = label_key(row[spec.label])
        if label not in self._index:
            labels = ", ".join(spec.labels)
            return f"label {label!r} has no verbalizer; those with one are {labels}"
        return f"empty text in {', '.join(texts)}"
