"""ZO-SGD: stochastic descent along two-point estimates of the gradient (Ghadimi and Lan, 2013)."""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State

Schedule = Literal["constant", "linear", "cosine"]


class ZOSGD(Optimizer):
    """Two evaluations a step: x ± ε·u, then against g = (f(x+εu) − f(x−εu)) / 2ε · u.

    `steps` is the number of steps that the schedules `linear` and `cosine` bring the learning rate
    to zero over. A step of which either value is not finite leaves the solution where it is.

    >>> import numpy as np
    >>> zo = ZOSGD(np.ones(10), learning_rate=0.02, radius=1e-3)
    >>> for _ in range(200):
    ...     x = zo.ask()
    ...     zo.tell((x.astype(float) ** 2).sum(axis=1))
    >>> float((zo.mean**2).sum()) < 1
    True
    """

    def __init__(
        self,
        x0: ArrayLike,
        learning_rate: float = 1e-2,
        radius: float = 1e-4,
        schedule: Schedule = "constant",
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(x0, learning_rate, seed)
        if not (math.isfinite(radius) and radius > 0):
            raise ValueError(f"radius must be positive and finite, not {radius}")
        if schedule != "constant" and (steps is None or steps < 1):
            raise ValueError(f"the {schedule} schedule needs the number of steps")
        self.learning_rate = learning_rate
        self.radius = radius
        self.schedule = schedule
        self.steps = steps
        self._taken = 0
        self._direction: Floats = np.zeros(0, dtype=np.float32)

    def _sample(self) -> Floats:
        self._direction = self._rng.standard_normal(self._mean.size, dtype=np.float32)  # ~ N(0, I)
        step = np.float32(self.radius) * self._direction
        return np.stack([self._mean + step, self._mean - step])

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        ahead, behind = losses
        if math.isfinite(ahead) and math.isfinite(behind):
            slope = (ahead - behind) / (2 * self.radius)
            self._mean = self._mean - np.float32(self._sigma * slope) * self._direction
        self._taken += 1
        self._sigma = self.learning_rate * self._share()

    def _share(self) -> float:
        """Return the part of the learning rate that the schedule leaves."""
        if self.schedule == "constant" or self.steps is None:
            return 1.0
        done = min(1.0, self._taken / self.steps)
        return 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2

    def state(self) -> State:
        return super().state() | {"taken": self._taken}

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._taken = state["taken"]
