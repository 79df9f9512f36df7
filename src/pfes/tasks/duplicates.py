"""Texts that are both among the test examples and among those to draw from."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Ints

AT_A_TIME = 10_000  # hashes that are compared at a time, which bounds the memory


def text_hash(texts: Iterable[object]) -> int:
    """Return a number of 64 bits that the same texts have, whatever their spaces and capitals.

    A data file may have millions of rows: a number for each fits in memory, its texts may not.
    """
    spelled = "\x1f".join(" ".join(str(text).split()).casefold() for text in texts)
    digest = hashlib.blake2b(spelled.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def not_among(hashes: Ints, held_out: Ints) -> NDArray[np.bool_]:
    """Say for each of `hashes` whether it is none of those that are held out."""
    distinct = np.ones(len(hashes), dtype=np.bool_)
    if not len(held_out):
        return distinct
    ordered = np.sort(held_out)
    for start in range(0, len(hashes), AT_A_TIME):
        some = hashes[start : start + AT_A_TIME]
        places = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
        distinct[start : start + AT_A_TIME] = ordered[places] != some
    return distinct
