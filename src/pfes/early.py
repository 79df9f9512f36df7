"""Exact early rejection: stop evaluating a candidate that can no longer be selected.

Losses are not negative, so a sum over some examples bounds the sum over all from below. Once that
bound is beyond what a candidate has to reach, no decision depends on its value any more.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pfes.models.base import Floats
from pfes.objective import Doubles, Evaluation, Loss, Objective
from pfes.tasks.batch import Batch

PARTS = 4  # in which the examples are evaluated, hardest first
SLACK = 1e-5  # rounding may leave a loss, which is not negative, this much below zero


class EarlyRejection:
    """Evaluates prompts one by one, each until its value, or that it does not matter, is known."""

    def __init__(self, objective: Objective, loss: Loss, initial: Floats) -> None:
        self._model, self._batch, self._loss = objective.model, objective.batch, loss
        self._labels = objective.batch.labels
        self._initial = initial

    @cached_property
    def _parts(self) -> list[tuple[NDArray[np.int64], Batch]]:
        """The examples in parts, hardest first for the initial prompt."""
        logprobs = self._model.logprobs(self._initial[None], self._batch)
        losses = self._loss.by_example(logprobs, self._labels)[0]
        parts = np.array_split(np.argsort(-losses, kind="stable"), PARTS)
        return [(part, self._batch.take(part)) for part in parts if len(part)]

    def __call__(
        self, prompts: Sequence[Floats] | Floats, bar: Callable[[Doubles], float]
    ) -> Evaluation:
        """Return the values; `bar` says, from those known so far, which ones matter."""
        values = np.empty(len(prompts))
        partial = []
        for i, prompt in enumerate(prompts):
            values[i], whole = self._value(prompt, bar(values[:i]))
            if not whole:
                partial.append(i)
        return Evaluation(values, tuple(partial))

    def _value(self, prompt: Floats, limit: float) -> tuple[float, bool]:
        losses = np.zeros(len(self._labels))
        limit += SLACK * (1 + self._loss.beta)
        for done, (part, batch) in enumerate(self._parts, start=1):
            logprobs = self._model.logprobs(prompt[None], batch)
            losses[part] = self._loss.by_example(logprobs, batch.labels)[0]
            if done < len(self._parts) and losses.mean() > limit:
                return float(losses.mean()), False
        return float(losses.mean()), True
