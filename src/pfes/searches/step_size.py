"""`--sigma0 auto`: the step size at which one step changes the answers by a set amount.

It needs no unit: whatever the scale of a model's embedding, a step of this size moves the
log-probabilities of the labels, relative to each other, by `TARGET` (root mean square).
"""

from collections.abc import Callable

import numpy as np

from pfes.contract import Floats
from pfes.searches.log_space import Doubles, bounded
from pfes.seeds import stream

TARGET = 0.03
LOOKS = 2  # steps that are tried, each from what the one before has shown
FACTOR = 1e3  # a step that changes nothing, or nothing but noise, is made longer by at most this
EVALUATIONS = 1 + LOOKS


def choose_sigma0(
    answers: Callable[[Floats], Doubles], start: Floats, scale: float, seed: int
) -> float:
    """Return the step size for a search from `start`.

    `answers` gives the log-probabilities of the labels' words, `(examples, labels)`, at a vector;
    `scale` is a first guess.
    """
    rng = stream(seed, "step size")
    before = _relative(answers(start))
    sigma = scale
    for _ in range(LOOKS):
        direction = rng.standard_normal(start.shape).astype(np.float32)
        after = _relative(answers(start + np.float32(sigma) * direction))
        change = float(np.sqrt(np.mean((after - before) ** 2)))
        if not np.isfinite(change):
            sigma /= 10
            continue
        sigma *= float(np.clip(TARGET / max(change, 1e-12), 1 / FACTOR, FACTOR))
    return sigma


def _relative(logprobs: Doubles) -> Doubles:
    """Return log-probabilities relative to the mean label, and to the mean example."""
    answers = bounded(logprobs)
    relative = answers - answers.mean(axis=1, keepdims=True)
    return np.asarray(relative - relative.mean(axis=0, keepdims=True))
