"""Arrays and plain values in one safetensors file, with a checksum over both."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pfes.errors import PfesError, one_line

Arrays = dict[str, np.ndarray[Any, Any]]
PLAIN = "plain"  # the one metadata key: more would be written in an order that varies by process
CHECKSUM = "checksum"


def pack(arrays: Arrays, plain: dict[str, Any]) -> bytes:
    """Return the file's content."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(plain | {CHECKSUM: _checksum(arrays, plain)})
    return save(arrays, metadata={PLAIN: text})


def unpack(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read a file back, whole and unharmed, or say what is wrong with it."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise PfesError(f"{path} does not exist") from None
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        message = f"{path} is damaged or not a safetensors file: {one_line(error, 200)}"
        raise PfesError(message) from None
    try:
        plain = json.loads(metadata[PLAIN])
        stored = plain.pop(CHECKSUM, None)
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError):
        raise PfesError(f"{path} was not written by pfes") from None
    if stored is not None and stored != _checksum(arrays, plain):
        raise PfesError(f"{path} is damaged: its checksum differs")
    return arrays, plain


def _checksum(arrays: Arrays, plain: dict[str, Any]) -> int:
    checksum = zlib.crc32(json.dumps(plain).encode())
    for name in sorted(arrays):
        array = arrays[name]
        checksum = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), checksum)
        if array.size:
            checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return checksum
