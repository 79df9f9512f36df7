"""A run folder: the only state of a run, written so that a crash never leaves half a file."""

import contextlib
import errno
import json
import logging
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pfes.errors import PfesError
from pfes.models.base import Floats
from pfes.tensors import Arrays, pack, unpack

DRAFT = ".tmp"
LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of a file system that has none

log = logging.getLogger(__name__)


class RunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.history = self.path / "history.jsonl"
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.previous = self.path / "checkpoint-before.safetensors"
        self.prompt = self.path / "prompt.safetensors"
        self.answers = self.path / "answers.jsonl"
        self.result = self.path / "result.json"
        self._history_checksum = 0

    @property
    def files(self) -> list[Path]:
        """The files that a run needs or leaves, each written after those before it."""
        return [self.config, self.history, self.checkpoint, self.prompt, self.answers, self.result]

    def create(self) -> None:
        """Make the folder, which must be empty or not exist."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # a draft is what a kill in the middle of a write leaves; it holds nothing
            occupied = any(
                entry.suffix != DRAFT and entry.name != LOCK for entry in self.path.iterdir()
            )
        except OSError as error:
            raise PfesError(f"--out {self.path}: {error.strerror}") from None
        if occupied:
            raise PfesError(
                f"--out {self.path} is not empty: continue its run with --resume, "
                "or choose another folder"
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out; the system itself ends this when the process ends."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise PfesError(
                f"--out {self.path} is in use by another process: wait for its end, or choose "
                "another folder"
            ) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in NO_LOCKS:
                raise PfesError(f"--out {self.path}: {error.strerror}") from None
            log.warning("%s: no locks there; let one process alone use it", self.path)
        try:
            yield
        finally:
            lock.release()
            if self.path.is_dir() and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink(missing_ok=True)  # nothing was begun

    def write_json(self, path: Path, content: dict[str, Any]) -> None:
        """Write a JSON file in one step."""
        replace_file(path, (json.dumps(_finite(content), indent=2) + "\n").encode())

    def read_json(self, path: Path) -> dict[str, Any]:
        """Read a JSON file of the folder."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PfesError(f"{self.path} holds no run: it has no {path.name}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise PfesError(f"{path} cannot be read: {error}") from None
        if not isinstance(content, dict):
            raise PfesError(f"{path} is not a JSON object")
        return content

    def write_answers(self, answers: Iterable[dict[str, Any]]) -> None:
        """Store what was answered to each test example, a line each."""
        lines = (json.dumps(_finite(answer), ensure_ascii=False) + "\n" for answer in answers)
        replace_file(self.answers, "".join(lines).encode())

    def read_answers(self) -> list[dict[str, Any]]:
        """Return what was answered to each test example."""
        return _read_lines(self.answers)

    def append_history(self, line: dict[str, Any]) -> None:
        """Add one step to the history."""
        content = (json.dumps(_finite(line)) + "\n").encode()
        try:
            with self.history.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # the checkpoints depend on it
        except OSError as error:
            raise PfesError(f"{self.history} cannot be written: {error.strerror}") from None
        self._history_checksum = zlib.crc32(content, self._history_checksum)

    def read_history(self) -> list[dict[str, Any]]:
        """Return the steps recorded so far."""
        return _read_lines(self.history)

    def chosen_history(self) -> list[dict[str, Any]]:
        """Return a finished run's steps; of several β, the one chosen: other losses differ."""
        history = self.read_history()
        if not history or history[0]["beta"] is None:
            return history
        chosen = self.read_json(self.result)["beta"]
        return [line for line in history if line["beta"] == chosen]

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Store nested arrays and plain values, with how much of the history belongs to them.

        The checkpoint before stays, for the case that this one is damaged.
        """
        arrays, plain = _split(state)
        size = self.history.stat().st_size if self.history.exists() else 0
        about = {"state": plain, "history_bytes": size, "history": self._history_checksum}
        replace_file(self.checkpoint, pack(arrays, about), keep=self.previous)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last sound checkpoint and drop what the history has beyond it.

        None if there is none yet; an error if there are only damaged ones.
        """
        damaged: list[PfesError] = []
        for path in (self.checkpoint, self.previous):
            if not path.exists():
                continue
            try:
                state = self._load_checkpoint(path)
            except PfesError as error:
                damaged.append(error)
                continue
            if damaged:
                log.warning("%s; going on from the checkpoint before", damaged[0])
                path.replace(self.checkpoint)  # so that it is not what the next one pushes out
            return state
        if damaged:
            raise PfesError(f"{damaged[0]}; start again in another folder")
        self._cut_history(0, 0)
        return None

    def _load_checkpoint(self, path: Path) -> dict[str, Any]:
        arrays, plain = unpack(path)
        try:
            size, state = int(plain["history_bytes"]), _merge(plain["state"], arrays)
            checksum = plain.get("history")
        except (KeyError, TypeError, ValueError):
            raise PfesError(f"{path} is not a checkpoint of pfes") from None
        try:
            content = self.history.read_bytes()[:size] if self.history.exists() else b""
        except OSError as error:
            raise PfesError(f"{self.history} cannot be read: {error.strerror}") from None
        found = zlib.crc32(content)
        if len(content) != size or (checksum is not None and found != checksum):
            raise PfesError(f"{self.history} is damaged: it is not the one of {path.name}")
        self._cut_history(size, found)
        return state

    def save_prompt(self, prompt: Floats, about: dict[str, Any]) -> None:
        """Store a prompt `(length, width)` with what is needed to use it."""
        replace_file(self.prompt, pack({"prompt": prompt}, about))

    def load_prompt(self) -> tuple[Floats, dict[str, Any]]:
        """Return the prompt, `(length, width)`, and what it was stored with."""
        if not self.path.is_dir():
            raise PfesError(f"{self.path} does not exist")
        if not self.prompt.exists():
            raise PfesError(f"{self.path} has no prompt: a run leaves one when it ends")
        arrays, about = unpack(self.prompt)
        if "prompt" not in arrays or arrays["prompt"].ndim != 2:
            raise PfesError(f"{self.prompt} does not hold a prompt")
        return arrays["prompt"].astype(np.float32), about

    def _cut_history(self, size: int, checksum: int) -> None:
        if self.history.exists():
            os.truncate(self.history, size)
        self._history_checksum = checksum


def replace_file(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Write a file in one step: after a crash it is the old one or the new one, whole.

    With `keep`, the old one is not lost but goes there.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        draft.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # makes the renaming itself survive a power cut
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise PfesError(f"{path} cannot be written: {error.strerror}") from None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file; none if it does not exist."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise PfesError(f"{path} cannot be read: {error}") from None
    if not all(isinstance(line, dict) for line in lines):
        raise PfesError(f"{path} is damaged: a line is not a JSON object")
    return lines


def _split(state: dict[str, Any], prefix: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Part nested arrays, by dotted name, from the plain values around them."""
    arrays: Arrays = {}
    plain: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[prefix + key] = value
        elif isinstance(value, dict):
            inner, plain[key] = _split(value, f"{prefix}{key}.")
            arrays |= inner
        else:
            plain[key] = value
    return arrays, plain


def _merge(plain: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    for name, array in arrays.items():
        *path, last = name.split(".")
        place = plain
        for key in path:
            place = place[key]
        place[last] = array
    return plain


def _finite(value: Any) -> Any:
    """Return the value as strict JSON has it: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
