"""Files that are whole or not there: every write of pfes goes through here."""

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pfes.errors import PfesError

DRAFT = ".tmp"  # ending of a file that is being written


@contextlib.contextmanager
def replacing(path: Path, keep: Path | None = None, **how: Any) -> Iterator[IO[Any]]:
    """Open a file for writing that takes the place of `path` when it is complete.

    After a crash `path` is the old file or the new one, whole. With `keep`, the old file is moved
    there first, so that after a crash at that moment it is there and not at `path`. `how` goes to
    `open`; without it the file is binary.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        with draft.open(**{"mode": "wb"} | how) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        draft.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise PfesError(f"{path} cannot be written: {error.strerror or error}") from None
        raise


def replace_file(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Write a file in one step: after a crash it is the old one or the new one, whole."""
    with replacing(path, keep) as file:
        file.write(content)


def replace_json(path: Path, content: Any) -> None:
    """Write a JSON file in one step; what is not finite becomes null."""
    replace_file(path, (json.dumps(finite(content), indent=2) + "\n").encode())


def _sync_folder(folder: Path) -> None:
    """Make a renaming survive a power cut, where the system has folders that can be synced."""
    with contextlib.suppress(PermissionError):  # Windows opens no folders
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def create_once(path: Path, make: Any) -> None:
    """Have `make(draft)` write a file or folder that appears at `path` only when complete.

    Several processes may do so at once: the first one to finish wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        make(draft)
        with contextlib.suppress(OSError):  # another process was first
            draft.rename(path)


def make_folder(path: Path) -> None:
    """Make a folder to write results to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PfesError(f"{path} cannot be made: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; `FileNotFoundError` is left to the caller."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise PfesError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise PfesError(f"{path} is not a JSON object")
    return content


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file; none if it does not exist.

    A last line without its end is still being written, and is left out.
    """
    try:
        with path.open(encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise PfesError(f"{path} cannot be read: {error}") from None
    if not all(isinstance(line, dict) for line in lines):
        raise PfesError(f"{path} is damaged: a line is not a JSON object")
    return lines


def json_line(value: dict[str, Any]) -> bytes:
    """Return a value as one line of a JSONL file."""
    return (json.dumps(finite(value), ensure_ascii=False) + "\n").encode()


def finite(value: Any) -> Any:
    """Return the value as strict JSON has it: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
