"""Sums and bounds of log-probabilities."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]

LOWEST = 50.0  # a log-probability further below its row's best counts as this far below


def log_sum_exp(values: Doubles) -> Doubles:
    """Return log Σ exp over the last axis."""
    top = values.max(axis=-1)
    with np.errstate(invalid="ignore"):  # all −inf gives NaN, which an optimizer counts as worst
        return top + np.log(np.exp(values - top[..., None]).sum(axis=-1))  # type: ignore[no-any-return]


def log_softmax(scores: Doubles) -> Doubles:
    """Return scores normalised over their last axis."""
    return np.asarray(scores - log_sum_exp(scores)[..., None])


def bounded(logprobs: NDArray[np.floating[Any]]) -> Doubles:
    """Return log-probabilities without −∞: none is further than `LOWEST` below its row's best."""
    wide = logprobs.astype(np.float64)
    best = wide.max(axis=-1, keepdims=True)
    return np.maximum(wide, np.where(best == -np.inf, 0.0, best) - LOWEST)
