"""(1+1)-ES with the 1/5 success rule (Algorithm 1 of the paper)."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State, damping

TARGET_SUCCESS_RATE = 1 / 5


class OnePlusOneES(Optimizer):
    """Keeps one parent, and replaces it by its child if that is at least as good.

    `damping_dimension=None` damps by the full dimension d (the standard form); the paper's ID
    variant passes the intrinsic dimension instead. The first candidate is x0 itself, as the
    parent needs a value; this costs one evaluation.

    Examples:
        >>> import numpy as np
        >>> es = OnePlusOneES(np.ones(1000), sigma0=0.1, damping_dimension=50)
        >>> for _ in range(300):
        ...     x = es.ask()
        ...     es.tell((x**2).sum(axis=1))
        >>> es.best_value < 900
        True
    """

    def __init__(
        self,
        x0: ArrayLike,
        sigma0: float,
        damping_dimension: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(x0, sigma0, seed)
        self.tau = damping(damping_dimension, self._solution.size)
        self._value: float | None = None  # of the parent; None until x0 has been evaluated

    def _sample(self) -> Floats:
        if self._value is None:
            return self._solution[None].copy()
        child = self._rng.standard_normal((1, self._solution.size), dtype=np.float32)  # ~ N(0, I)
        child *= np.float32(self._sigma)
        child += self._solution
        return child

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        value = float(losses[0])
        if self._value is None:
            self._value = value
            return
        success = math.isfinite(value) and value <= self._value
        if success:
            self._solution = candidates[0]
            self._value = value
        self._sigma *= math.exp((success - TARGET_SUCCESS_RATE) / self.tau)

    def state(self) -> State:
        return super().state() | {"value": self._value}

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._value = state["value"]
