"""Read texts without labels from a file: to be labelled, or to learn from as they are."""

from collections.abc import Iterator
from pathlib import Path

from pfes.errors import PfesError, SettingError
from pfes.tasks.data import Row, read_file
from pfes.tasks.example import UNKNOWN, Example, as_text
from pfes.tasks.spec import TaskSpec


def read_texts(spec: TaskSpec, path: Path, setting: str) -> Iterator[tuple[Row, Example]]:
    """Yield the rows of a file, each with its texts as an example whose label is unknown.

    A CSV, TSV, JSONL or Parquet file has the task's columns; a .txt file has one text per line.
    `setting` is the one that names the file.
    """
    rows = _read_lines(spec, path, setting) if path.suffix == ".txt" else read_file(path)
    option = f"--{setting.replace('_', '-')}"
    for number, row in enumerate(rows, start=1):
        yield row, unknown_example(spec, row, f"{option} {path}, row {number}")


def unknown_example(spec: TaskSpec, row: Row, location: str) -> Example:
    """Return the texts of a row; `location` is for the error message."""
    columns = {name: spec.column(name) for name in spec.fields}
    columns = {n: column if column in row else n for n, column in columns.items()}
    missing = [spec.column(name) for name, column in columns.items() if column not in row]
    if missing:
        raise PfesError(
            f"{location}: no column {missing[0]!r}; its columns are {', '.join(map(str, row))}"
        )
    complete = all(row[column] is not None for column in columns.values())  # half a pair is none
    fields = {name: as_text(row[c]) if complete else "" for name, c in columns.items()}
    return Example(fields, UNKNOWN)


def _read_lines(spec: TaskSpec, path: Path, setting: str) -> Iterator[Row]:
    if len(spec.fields) != 1:
        raise SettingError(
            setting, f"a .txt file has one text per line, but this task needs {len(spec.fields)}"
        )
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                yield {spec.fields[0]: line.rstrip("\r\n")}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(setting, f"{path}: {error}") from None
