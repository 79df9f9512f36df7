"""SaES: self-adaptive evolution strategy with recombination (Algorithm 2 of the paper)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats
from pfes.optimizers.self_adaptive import SelfAdaptive


class SAES(SelfAdaptive):
    """Evolves a population of candidates together with their step sizes.

    `parents` defaults to a quarter of the population. `damping_dimension=None` damps by the full
    dimension d (the standard form); the paper's ID variant passes the intrinsic dimension.
    A child without a finite value is never a parent; if no value is finite, nothing changes.

    Examples:
        >>> import numpy as np
        >>> es = SAES(np.ones(1000), sigma0=0.1, damping_dimension=50)
        >>> for _ in range(30):
        ...     x = es.ask()
        ...     es.tell((x**2).sum(axis=1))
        >>> float((es.solution**2).sum()) < 900
        True
    """

    def __init__(
        self,
        x0: ArrayLike,
        sigma0: float,
        population: int = 20,
        parents: int | None = None,
        damping_dimension: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(x0, sigma0, population, damping_dimension, seed)
        self.parents = max(1, population // 4) if parents is None else parents
        if not 1 <= self.parents <= self.population:
            raise ValueError(
                f"need 1 ≤ parents ≤ population, got parents={self.parents}, "
                f"population={self.population}"
            )

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        ranking = np.argsort(losses, kind="stable")[: self.parents]
        selected = ranking[np.isfinite(losses[ranking])]
        if selected.size == 0:
            return
        self._solution = candidates[selected].mean(axis=0)
        self._sigma = float(self._child_sigmas[selected].mean())
