"""Adam (Kingma and Ba, 2015), which follows gradients: the ceiling for searches."""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State

DECAY, SQUARE_DECAY, LEAST = 0.9, 0.999, 1e-8  # β1, β2 and ε, as in PyTorch and in PEFT's trainer
# tried one after the other, as parts of the learning rate
RATES = (0.3, 0.1, 1.0, 0.03)


class Adam(Optimizer):
    """Follows the gradient from x0 with several learning rates in turn, `steps` with each.

    It is the one optimizer that needs more than values: `follow` takes the gradient at the
    candidate, before `tell`. A step counts as three evaluations: two stand for the pass back
    through the function. A gradient or value that is not finite leaves the solution where it is.

    Examples:
        >>> import numpy as np
        >>> adam = Adam(np.ones(10), learning_rate=0.1, steps=50)
        >>> for _ in range(50):
        ...     x = adam.ask()
        ...     adam.follow(2 * x[0])
        ...     adam.tell((x.astype(float) ** 2).sum(axis=1))
        >>> float((adam.solution**2).sum()) < 0.1
        True
    """

    cost: ClassVar[int] = 3

    def __init__(self, x0: ArrayLike, learning_rate: float, steps: int) -> None:
        super().__init__(x0, learning_rate, seed=0)  # nothing is drawn
        if steps < 1:
            raise ValueError(f"there must be a step at least, not {steps}")
        self.learning_rate = learning_rate
        self.steps = steps
        self._gradient: Floats | None = None
        self._start = self._solution
        self._tried = 0  # learning rates before the present one
        self._restart()

    def _restart(self) -> None:
        self._solution = self._start.copy()
        self._sigma = self.learning_rate * RATES[self._tried]
        self._taken = 0  # steps with this rate
        self._mean = np.zeros_like(self._start)
        self._square = np.zeros_like(self._start)

    def follow(self, gradient: Floats) -> None:
        """Take the gradient at the candidate that was asked for."""
        self._gradient = gradient

    def _sample(self) -> Floats:
        # the end of a rate stays the solution until something is asked again: it may be selected
        if self._taken == self.steps and self._tried + 1 < len(RATES):
            self._tried += 1
            self._restart()
        return self._solution[None].copy()

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        self._taken += 1
        gradient, self._gradient = self._gradient, None
        if gradient is None:
            raise RuntimeError("tell() needs the gradient, too: call follow() first")
        if not (math.isfinite(losses[0]) and np.isfinite(gradient).all()):
            return
        self._mean = np.float32(DECAY) * self._mean + np.float32(1 - DECAY) * gradient
        self._square = (
            np.float32(SQUARE_DECAY) * self._square + np.float32(1 - SQUARE_DECAY) * gradient**2
        )
        mean = self._mean / np.float32(1 - DECAY**self._taken)
        square = self._square / np.float32(1 - SQUARE_DECAY**self._taken)
        step = mean / (np.sqrt(square) + np.float32(LEAST))
        self._solution = self._solution - np.float32(self._sigma) * step

    def state(self) -> State:
        own = {"tried": self._tried, "taken": self._taken}
        return super().state() | own | {"mean": self._mean, "square": self._square}

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._tried, self._taken = state["tried"], state["taken"]
        self._mean, self._square = state["mean"], state["square"]
