"""Read the rows of a data set from files, a folder, the Hub or the embedded data; write rows."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from pfes.errors import PfesError, SettingError, one_line
from pfes.system.downloads import HUB_TIMEOUT
from pfes.system.files import replacing
from pfes.tasks.file_check import (
    NO_UTF_8,
    SAVE_AS,
    SPREADSHEETS,
    check_is_text,
    other_separator,
)
from pfes.tasks.spec import DatasetSpec

Row = dict[str, Any]
Rows = Callable[[], Iterator[Row]]  # every call starts again from the first row
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
WRITABLE_SUFFIXES = (".jsonl", ".csv", ".tsv")


def read_file(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV, TSV, JSONL or Parquet file."""
    if path.suffix not in SUFFIXES:
        advice = f": {SAVE_AS}" if path.suffix.lower() in SPREADSHEETS else ""
        raise PfesError(f"data file {path} must end in one of {', '.join(SUFFIXES)}{advice}")
    if not path.is_file():
        raise PfesError(f"data file {path} does not exist")
    try:
        if path.suffix == ".parquet":
            yield from _read_parquet(path)
            return
        check_is_text(path)
        if path.suffix == ".jsonl":
            yield from _read_jsonl(path)
        else:
            yield from _read_table(path, delimiter_of(path))
    except UnicodeDecodeError:
        raise PfesError(f"data file {path} cannot be read: {NO_UTF_8}") from None
    except OSError as error:
        raise PfesError(f"data file {path} cannot be read: {one_line(error)}") from None


def delimiter_of(path: Path) -> str:
    """Return what separates the columns of a CSV or TSV file."""
    return "\t" if path.suffix == ".tsv" else ","


class RowWriter:
    """Writes rows to a CSV, TSV or JSONL file, which appears under its name when complete.

    In CSV and TSV, the first row determines the columns; a row with other columns is an error.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in WRITABLE_SUFFIXES:
            raise SettingError("out", f"{path} must end in one of {', '.join(WRITABLE_SUFFIXES)}")
        self.path = path
        self.nested = path.suffix == ".jsonl"  # whether a value may be an object
        self._replacing = replacing(path, mode="w", encoding="utf-8", errors="replace", newline="")
        self._table: csv.DictWriter[str] | None = None
        self._count = 0

    def __enter__(self) -> "RowWriter":
        self._file = self._replacing.__enter__()
        return self

    def write(self, row: Row) -> None:
        """Add a row."""
        self._count += 1
        if self.nested:
            self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            return
        if self._table is None:
            delimiter = delimiter_of(self.path)
            self._table = csv.DictWriter(self._file, list(row), delimiter=delimiter)
            self._table.writeheader()
        try:
            self._table.writerow(row)
        except ValueError as error:
            raise SettingError("out", f"{self.path}, row {self._count}: {error}") from None

    def __exit__(self, *exception: Any) -> None:
        self._replacing.__exit__(*exception)


def _read_table(path: Path, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # long texts are allowed
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
        file.seek(0)
        # strict: otherwise a text that begins with a quote would swallow the rows after it
        rows = enumerate(csv.DictReader(file, delimiter=delimiter, strict=True), 1)
        try:
            for number, row in rows:
                if None in row:
                    quoted = "a tab" if delimiter != "," else "commas"
                    advice = f"a text with {quoted} in it must be quoted"
                    advice = other_separator(header, delimiter) or advice
                    message = f"row {number}: more values than columns; {advice}"
                    raise PfesError(f"data file {path}, {message}")
                yield row
        except csv.Error as error:
            advice = "quote a text that has quotes or commas in it, and double every quote inside"
            advice = other_separator(header, delimiter) or f"{advice} it"
            raise PfesError(f"data file {path}: {one_line(error)}; {advice}") from None


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
    """Yield a split's rows from a local copy of a Hub data set: `split.jsonl`, `.csv` and so on.

    Parquet shards as the Hub stores them (`split-00000-of-00002.parquet`) are read in order.
    """
    files = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    shards = next(([file] for file in files if file.is_file()), None)
    shards = shards or sorted(folder.glob(f"{split}-*.parquet"))
    if not shards:
        raise SettingError(
            "data_dir",
            f"{folder} has no {split!r} split "
            f"(looked for {', '.join(file.name for file in files)}, {split}-*.parquet)",
        )
    for file in shards:
        yield from read_file(file)


@dataclass(frozen=True)
class HubSplit:
    """The rows of a split on the Hub; each can be had by its number.

    It is loaded once in a process: what lies on the Hub does not change meanwhile.
    """

    name: str
    config: str | None
    split: str

    def __call__(self) -> Iterator[Row]:
        yield from load_hub_split(self)

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """Return some of the rows, without reading the others."""
        columns = load_hub_split(self)[list(numbers)]
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]


@cache
def load_hub_split(place: HubSplit) -> Any:
    """Load a split from the Hugging Face Hub, or from its cache if it cannot be reached."""
    import datasets
    import huggingface_hub

    offline = ""
    try:
        huggingface_hub.HfApi().dataset_info(place.name, timeout=HUB_TIMEOUT)
    except Exception as error:  # the type depends on the network library of the Hub's client
        offline = one_line(error, 120)
        # use only the cache, instead of retrying for half a minute on each file
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(place.name, place.config, split=place.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise PfesError(
            f"data set {place.name!r} ({place.config or 'default'}, {place.split}) cannot be "
            f"loaded from the Hub ({offline or one_line(error, 120)}): use a local copy with "
            "--data-dir"
        ) from None


def read_splits(
    name: str, dataset: DatasetSpec, base: Path, data_dir: Path | None
) -> tuple[Rows, Rows | None]:
    """Return functions that read the training rows and, if the data set has any, the test rows."""
    if dataset.file is not None:
        test = None if dataset.test_file is None else partial(read_file, base / dataset.test_file)
        return partial(read_file, base / dataset.file), test
    if dataset.embedded is not None:
        from pfes.tasks.embedded_data import embedded_data

        return partial(read_file, embedded_data(dataset.embedded)), None
    if dataset.local and data_dir is None:
        raise SettingError("data_dir", f"give the folder that has the examples of {name!r}")
    if data_dir is None:
        read: Callable[[str], Rows] = partial(HubSplit, str(dataset.hub), dataset.config)
    else:
        folder = data_dir / name
        if not folder.is_dir():
            raise SettingError("data_dir", f"{folder} does not exist")
        read = partial(partial, read_folder, folder)
    return read(dataset.train), None if dataset.test is None else read(dataset.test)
