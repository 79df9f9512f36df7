"""ZO-SGD: stochastic descent along two-point estimates of the gradient (Ghadimi and Lan, 2013)."""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State

Schedule = Literal["constant", "linear", "cosine"]


class ZOSGD(Optimizer):
    """Evaluates x ± ε·u in each step, then moves against g = (f(x+εu) − f(x−εu)) / 2ε · u.

    The schedules `linear` and `cosine` lower the learning rate to zero within `steps` steps. A step
    with a value that is not finite leaves the solution unchanged.

    Examples:
        >>> import numpy as np
        >>> zo = ZOSGD(np.ones(10), learning_rate=0.02, radius=1e-3)
        >>> for _ in range(200):
        ...     x = zo.ask()
        ...     zo.tell((x.astype(float) ** 2).sum(axis=1))
        >>> float((zo.solution**2).sum()) < 1
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
        self._steps_done = 0
        self._direction: Floats = np.zeros(0, dtype=np.float32)

    def _sample(self) -> Floats:
        self._direction = self._rng.standard_normal(
            self._solution.size, dtype=np.float32
        )  # ~ N(0, I)
        step = np.float32(self.radius) * self._direction
        return np.stack([self._solution + step, self._solution - step])

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        plus, minus = losses
        if math.isfinite(plus) and math.isfinite(minus):
            slope = (plus - minus) / (2 * self.radius)
            self._solution = self._solution - np.float32(self._sigma * slope) * self._direction
        self._steps_done += 1
        self._sigma = self.learning_rate * self._rate_factor()

    def _rate_factor(self) -> float:
        """Return the factor by which the schedule lowers the learning rate."""
        if self.schedule == "constant" or self.steps is None:
            return 1.0
        done = min(1.0, self._steps_done / self.steps)
        return 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2

    def state(self) -> State:
        return super().state() | {"taken": self._steps_done}

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._steps_done = state["taken"]
