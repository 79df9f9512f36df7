"""What was measured on this machine: measured once, and remembered in the cache folder."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pfes.errors import PfesError
from pfes.system.downloads import cache_dir
from pfes.system.files import make_folder, replace_json

Value = TypeVar("Value")


def remembered(
    name: str, key: str, measure: Callable[[], Value], usable: Callable[[Any], bool]
) -> Value:
    """Return what the file `name` of the cache folder has under `key`, or measure it.

    Entries that are not `usable` count as not there.
    """
    file = cache_dir() / name
    known = _read(file, usable)
    if key not in known:
        measured = measure()
        known = {key: measured} | _read(file, usable)  # another process may have been first
        with suppress(PfesError):  # without a cache it is measured again
            make_folder(file.parent)
            replace_json(file, known)
    value: Value = known[key]
    return value


def _read(file: Path, usable: Callable[[Any], bool]) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {name: value for name, value in known.items() if usable(value)}
