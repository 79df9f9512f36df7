"""CMA-ES, by the `cma` package (Hansen), behind this package's ask/tell and state."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats, Optimizer, State

OnStop = Literal["restart", "end"]
LEAST = 3  # candidates of a generation
ARRAYS = 9  # d × d float64 arrays at the peak, while eigenvectors are computed: 8.0 were measured


class CMAES(Optimizer):
    """Covariance matrix adaptation; memory and time grow with the square of the dimension.

    When one of CMA's own stop rules fires, `on_stop="restart"` begins again from x0 with fresh
    randomness, so that a budget can be spent; `"end"` sets `stopped` to the reason.

    The state is the list of all values told: `load_state` replays them, which repeats every
    internal bit without storing a d × d matrix or unpickling anything.
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
        if population < LEAST:
            raise ValueError(f"CMA-ES needs at least {LEAST} candidates, not {population}")
        self.population = population
        self.on_stop = on_stop
        self._x0 = self._mean.copy()
        self._sigma0 = sigma0
        self._told: list[NDArray[np.float64]] = []
        self._strategy = self._begin()

    def _begin(self) -> Any:
        import cma

        options = {
            "popsize": self.population,
            "randn": lambda *shape: self._rng.standard_normal(shape),
            "seed": np.nan,  # cma's global seed is not touched
            "verbose": -9,
            "verb_log": 0,
        }
        return cma.CMAEvolutionStrategy(self._x0.astype(np.float64), self._sigma0, options)

    def _sample(self) -> Floats:
        self._exact = self._strategy.ask()
        return np.array(self._exact, dtype=np.float32)

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        self._told.append(losses)
        if np.isfinite(losses).sum() > 1:
            worst = losses[np.isfinite(losses)].max()
            # cma ranks, so any value behind the worst stands for one that is not finite
            values = np.where(np.isfinite(losses), losses, worst + abs(worst) + 1)
            self._strategy.tell(self._exact, values.tolist())
        self._mean = np.array(self._strategy.mean, dtype=np.float32)
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
    """Return the bytes that CMA-ES needs in so many dimensions."""
    return ARRAYS * 8 * dimension**2
