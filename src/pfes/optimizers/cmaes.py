"""CMA-ES from the `cma` package (Hansen), as one of this package's optimizers."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State

OnStop = Literal["restart", "end"]
LEAST_POPULATION = 3
ARRAYS = 9  # d × d float64 arrays at the peak, when eigenvectors are computed (8.0 measured)


class CMAES(Optimizer):
    """Covariance matrix adaptation; memory and time grow with the square of the dimension.

    When one of CMA's own stop rules fires, `on_stop="restart"` starts again from x0 with new random
    numbers, so that the whole budget is used; `"end"` sets `stopped` to the reason.

    The state holds all values told. `load_state` tells them again, which restores the internal
    state exactly, without storing a d × d matrix or unpickling anything.
    """

    def __init__(
        self,
        x0: ArrayLike,
        sigma0: float,
        population: int = 20,
        on_stop: OnStop = "restart",
        seed: int = 0,
    ) -> None:
        super().__init__(x0, sigma0, seed)
        if population < LEAST_POPULATION:
            raise ValueError(
                f"CMA-ES needs at least {LEAST_POPULATION} candidates, not {population}"
            )
        self.population = population
        self.on_stop = on_stop
        self._x0 = self._solution.copy()
        self._sigma0 = sigma0
        self._told: list[NDArray[np.float64]] = []
        self._strategy = self._begin()

    def _begin(self) -> Any:
        import cma

        options = {
            "popsize": self.population,
            "randn": lambda *shape: self._rng.standard_normal(shape),
            "seed": np.nan,  # leaves the global random state alone
            "verbose": -9,
            "verb_log": 0,
        }
        return cma.CMAEvolutionStrategy(self._x0.astype(np.float64), self._sigma0, options)

    def _sample(self) -> Floats:
        self._exact_candidates = self._strategy.ask()  # float64, as cma wants them back
        return np.array(self._exact_candidates, dtype=np.float32)

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        self._told.append(losses)
        if np.isfinite(losses).sum() > 1:
            worst = losses[np.isfinite(losses)].max()
            # cma uses only ranks, so any value above the worst can replace one that is not finite
            values = np.where(np.isfinite(losses), losses, worst + abs(worst) + 1)
            self._strategy.tell(self._exact_candidates, values.tolist())
        self._solution = np.array(self._strategy.mean, dtype=np.float32)
        self._sigma = float(self._strategy.sigma)
        reasons = self._strategy.stop()
        if reasons:
            if self.on_stop == "end":
                self.stopped = ", ".join(reasons)
            else:
                self._strategy = self._begin()

    def state(self) -> State:
        return super().state() | {"told": np.array(self._told).reshape(-1, self.population)}

    def load_state(self, state: State) -> None:
        for losses in state["told"]:
            self.ask()
            self.tell(losses)
        super().load_state(state)


def memory_needed(dimension: int) -> int:
    """Return how many bytes CMA-ES needs at its peak."""
    return ARRAYS * 8 * dimension**2
