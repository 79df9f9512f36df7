"""Rows of a data set: from files, a folder of files, the Hub, or the embedded data."""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pfes.errors import PfesError
from pfes.tasks.spec import DatasetSpec, one_line

Row = dict[str, Any]
Rows = Callable[[], Iterator[Row]]  # from the first on, each time it is called
HUB_TIMEOUT = 20.0  # seconds; the Hub's own client would retry for half a minute
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
WRITTEN = (".jsonl", ".csv", ".tsv")


def read_file(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV, TSV, JSONL or Parquet file."""
    if path.suffix not in SUFFIXES:
        raise PfesError(f"data file {path} must end in one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise PfesError(f"data file {path} does not exist")
    try:
        if path.suffix == ".jsonl":
            yield from _read_jsonl(path)
        elif path.suffix == ".parquet":
            yield from _read_parquet(path)
        else:
            yield from _read_table(path, "\t" if path.suffix == ".tsv" else ",")
    except csv.Error as error:
        raise PfesError(
            f"data file {path}: {one_line(error)}; a text with quotes in it is between quotes, and "
            "has each of its own twice"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PfesError(f"data file {path} cannot be read: {one_line(error)}") from None


class RowWriter:
    """Writes rows to a CSV, TSV or JSONL file, which appears under its name when complete.

    The first row's columns are those of a table; a row with others is an error, nothing is lost.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in WRITTEN:
            raise PfesError(f"--out {path} must end in one of {', '.join(WRITTEN)}")
        self.path = path
        self.nested = path.suffix == ".jsonl"
        self._draft = path.with_name(path.name + ".tmp")
        self._table: csv.DictWriter[str] | None = None
        self._count = 0

    def __enter__(self) -> "RowWriter":
        try:
            self._file = self._draft.open("w", encoding="utf-8", errors="replace", newline="")
        except OSError as error:
            raise PfesError(f"--out {self.path}: {error.strerror}") from None
        return self

    def write(self, row: Row) -> None:
        """Add a row."""
        self._count += 1
        try:
            if self.nested:
                self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
                return
            if self._table is None:
                delimiter = "\t" if self.path.suffix == ".tsv" else ","
                self._table = csv.DictWriter(self._file, list(row), delimiter=delimiter)
                self._table.writeheader()
            self._table.writerow(row)
        except OSError as error:
            raise PfesError(f"--out {self.path}: {error.strerror}") from None
        except ValueError as error:
            raise PfesError(f"--out {self.path}, row {self._count}: {error}") from None

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._file.close()
            if kind is None:
                self._draft.replace(self.path)
            else:
                self._draft.unlink(missing_ok=True)
        except OSError as error:
            raise PfesError(f"--out {self.path}: {error.strerror}") from None


def _read_table(path: Path, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a long review is not an error
    with path.open(encoding="utf-8-sig", newline="") as file:
        # strict: a text that begins with a quote would otherwise take in the rows behind it
        for number, row in enumerate(csv.DictReader(file, delimiter=delimiter, strict=True), 1):
            if None in row:
                raise PfesError(
                    f"data file {path}, row {number}: it has more values than there are columns; a "
                    f"text with {'a tab' if delimiter != ',' else 'commas'} in it needs quotes"
                )
            yield row


def _read_jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                raise PfesError(f"data file {path}, line {number}: not valid JSON") from None
            if not isinstance(row, dict):
                raise PfesError(f"data file {path}, line {number}: not a JSON object")
            yield row


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise PfesError(f"data file {path} cannot be read: {one_line(error)}") from None


def read_folder(folder: Path, split: str) -> Iterator[Row]:
    """Yield a split's rows from a local copy of a Hub data set: `split.jsonl` or a sibling format.

    Parquet shards as the Hub stores them (`split-00000-of-00002.parquet`) are read in order.
    """
    files = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    found = next(([file] for file in files if file.is_file()), None)
    found = found or sorted(folder.glob(f"{split}-*.parquet"))
    if not found:
        raise PfesError(
            f"--data-dir: {folder} has no {split!r} split "
            f"(looked for {', '.join(file.name for file in files)}, {split}-*.parquet)"
        )
    for file in found:
        yield from read_file(file)


def read_hub(dataset: DatasetSpec, split: str) -> Iterator[Row]:
    """Yield a split's rows from the Hugging Face Hub, or from its cache where the Hub is away."""
    import datasets
    import huggingface_hub

    away = ""
    try:
        huggingface_hub.HfApi().dataset_info(str(dataset.hub), timeout=HUB_TIMEOUT)
    except Exception as error:  # whichever network library the Hub's client uses
        away = one_line(error)[:120]
        # from here on the caches alone, without half a minute of retries for each file
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield from datasets.load_dataset(dataset.hub, dataset.config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise PfesError(
            f"data set {dataset.hub!r} ({dataset.config or 'default'}, {split}) cannot be had from "
            f"the Hub ({away or one_line(error)[:120]}): a local copy goes with --data-dir"
        ) from None


def read_splits(
    name: str, dataset: DatasetSpec, base: Path, data_dir: Path | None
) -> tuple[Rows, Rows | None]:
    """Return how to read training rows and, where the data set has them, test rows."""
    if dataset.file is not None:
        test = None if dataset.test_file is None else partial(read_file, base / dataset.test_file)
        return partial(read_file, base / dataset.file), test
    if dataset.embedded is not None:
        from pfes.tasks.embedded import embedded_data

        return partial(read_file, embedded_data(dataset.embedded)), None
    read: Callable[[str], Iterator[Row]] = partial(read_hub, dataset)
    if data_dir is not None:
        folder = data_dir / name
        if not folder.is_dir():
            raise PfesError(f"--data-dir: {folder} does not exist")
        read = partial(read_folder, folder)
    return partial(read, dataset.train), None if dataset.test is None else partial(
        read, dataset.test
    )
