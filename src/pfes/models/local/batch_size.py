"""How many tokens a forward pass should have: measured once, and remembered."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pfes.errors import OutOfMemoryError, PfesError
from pfes.system.downloads import cache_dir
from pfes.system.files import make_folder, replace_json

FIRST = 1024  # tokens to begin with: enough to keep a CPU busy
WORTH = 0.97  # a larger or smaller pass must take less than this part of the time


def remembered_batch_tokens(key: str, most: int, seconds: Callable[[int], float]) -> int:
    """Return how many tokens a forward pass should have, at most `most`.

    `seconds` measures what one candidate takes with passes of so many tokens. The choice is
    remembered by `key`, so that runs of one config have the same shapes and so the same bits.
    """
    file = cache_dir() / "batch-sizes.json"
    known = _read(file)
    if key not in known:
        measured = fastest_batch_tokens(most, seconds)
        known = {key: measured} | _read(file)  # another process may have been first
        with suppress(PfesError):  # without a cache the choice is kept in the run's config alone
            make_folder(file.parent)
            replace_json(file, known)
    return known[key]


def fastest_batch_tokens(most: int, seconds: Callable[[int], float]) -> int:
    """Double the size of a pass as long as it fits into memory and is faster; else halve it.

    That there is no memory for a single token is left to the caller.
    """
    times: dict[int, float] = {}

    def measured(tokens: int) -> float:
        if tokens not in times:
            try:
                times[tokens] = seconds(tokens)
            except OutOfMemoryError:
                if tokens == 1:
                    raise
                times[tokens] = math.inf
        return times[tokens]

    first = min(FIRST, most)
    while measured(first) == math.inf:
        most, first = first // 2, first // 2  # nothing above it can fit
    best = first
    for factor in (2.0, 0.5):
        while best * factor <= most:
            tried = int(best * factor)
            if tried < 1 or measured(tried) > WORTH * measured(best):
                break
            best = tried
        if best != first:
            break
    return best


def _read(file: Path) -> dict[str, int]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {name: size for name, size in known.items() if type(size) is int and size > 0}
