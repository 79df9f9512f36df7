"""Independent random streams from one run seed."""

import zlib

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator that `seed` gives to the purpose `name`.

    Each purpose draws from a stream of its own, so that using more random numbers for one
    (say, a longer prompt) never shifts another (the few-shot split).
    """
    return np.random.default_rng([seed, zlib.crc32(name.encode())])
