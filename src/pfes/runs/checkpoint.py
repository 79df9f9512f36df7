"""A checkpoint: a search's state in one file, with how much of the history belongs to it."""

import logging
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pfes.errors import PfesError
from pfes.runs.run_files import RunFiles
from pfes.system.tensors import Arrays, pack, unpack

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A search's state, and the part of the history that was written before it."""

    path: Path
    state: dict[str, Any]
    history_bytes: int
    history_checksum: int


def checkpoint_bytes(state: dict[str, Any], history_bytes: int, history_checksum: int) -> bytes:
    """Return the content of a checkpoint file: nested arrays and plain values."""
    arrays, plain = _split(state)
    about = {"state": plain, "history_bytes": history_bytes, "history": history_checksum}
    return pack(arrays, about)


def read_checkpoint(files: RunFiles) -> Checkpoint | None:
    """Return the last sound checkpoint of a run, or None if there is none yet.

    Only damaged ones are an error. Nothing is changed.
    """
    damaged: list[PfesError] = []
    for path in (files.checkpoint, files.previous_checkpoint):
        if not path.exists():
            continue
        try:
            checkpoint = _read(path, files.history)
        except PfesError as error:
            damaged.append(error)
            continue
        if damaged:
            log.warning("%s; going on from the checkpoint before", damaged[0])
        return checkpoint
    if damaged:
        raise PfesError(f"{damaged[0]}; start again in another folder")
    return None


def _read(path: Path, history: Path) -> Checkpoint:
    arrays, plain = unpack(path)
    try:
        size, checksum = int(plain["history_bytes"]), int(plain["history"])
        state = _merge(plain["state"], arrays)
    except (KeyError, TypeError, ValueError):
        raise PfesError(f"{path} is not a checkpoint of pfes") from None
    try:
        content = history.read_bytes()[:size] if history.exists() else b""
    except OSError as error:
        raise PfesError(f"{history} cannot be read: {error.strerror}") from None
    if len(content) != size or zlib.crc32(content) != checksum:
        raise PfesError(f"{history} is damaged: it does not belong to {path.name}")
    return Checkpoint(path, state, size, checksum)


def _split(state: dict[str, Any], prefix: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Separate nested arrays, by dotted name, from the plain values around them."""
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
        target = plain
        for key in path:
            target = target[key]
        target[last] = array
    return plain
