"""`--sigma0 auto`: the step size at which one step changes the answers by a set amount.

It needs no unit: whatever the scale of a model's embedding, a step of this size moves the
log-probabilities of the labels, relative to each other, by `TARGET` (root mean square).

ZO-SGD has a learning rate instead. Its two points are so far apart as a step of this size, and its
rate is the one at which a usual step is `RATE_STEPS` times as long.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pfes.contract import Floats
from pfes.methods import Method
from pfes.searches.log_space import Doubles, bounded
from pfes.seeds import stream

TARGET = 0.03
LOOKS = 2  # steps that are tried, each from what the one before has shown
FACTOR = 1e3  # a step that changes nothing, or nothing but noise, is made longer by at most this
EVALUATIONS = 1 + LOOKS
RATE_STEPS = 1.0  # length of ZO-SGD's usual step, in step sizes
FLATTEST = 0.1  # least usual change of the loss in one step, as a part of that of the answers


@dataclass(frozen=True)
class StepSize:
    """How far a step goes, and how steep the loss is there."""

    sigma0: float
    slope: float  # usual change of the loss in one step, divided by the step size

    @property
    def learning_rate(self) -> float:
        """The rate at which ZO-SGD's usual step has `RATE_STEPS` times the step size."""
        return RATE_STEPS * self.sigma0 / max(self.slope, FLATTEST * TARGET / self.sigma0)


def is_auto(sigma0: float | str | None, method: Method) -> bool:
    """Say whether the step size of a method is to be found; tokens have no step size."""
    return method.space in ("full", "subspace") and sigma0 in (None, "auto")


def choose_step_size(
    answers: Callable[[Floats], Doubles],
    loss: Callable[[Doubles], float],
    start: Floats,
    scale: float,
    seed: int,
) -> StepSize:
    """Return the step size for a search from `start`.

    `answers` gives the log-probabilities of the labels' words, `(examples, labels)`, at a vector,
    and `loss` what is minimised of them; `scale` is a first guess.
    """
    rng = stream(seed, "step size")
    first = answers(start)
    before, value = _relative(first), loss(first)
    sigma = scale
    slopes = []
    for _ in range(LOOKS):
        direction = rng.standard_normal(start.shape).astype(np.float32)
        moved = answers(start + np.float32(sigma) * direction)
        change = float(np.sqrt(np.mean((_relative(moved) - before) ** 2)))
        if not np.isfinite(change):
            sigma /= 10
            continue
        slopes.append((loss(moved) - value) / sigma)
        sigma *= float(np.clip(TARGET / max(change, 1e-12), 1 / FACTOR, FACTOR))
    known = [slope**2 for slope in slopes if np.isfinite(slope)]
    return StepSize(sigma, float(np.sqrt(np.mean(known))) if known else 0.0)


def _relative(logprobs: Doubles) -> Doubles:
    """Return log-probabilities relative to the mean label, and to the mean example."""
    answers = bounded(logprobs)
    relative = answers - answers.mean(axis=1, keepdims=True)
    return np.asarray(relative - relative.mean(axis=0, keepdims=True))
