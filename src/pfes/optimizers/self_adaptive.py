"""A population of children, each with a step size of its own: what SaES and WES ask for."""

import numpy as np
from numpy.typing import ArrayLike

from pfes.optimizers.base import Floats, Optimizer, damping


class SelfAdaptive(Optimizer):
    """Draws children around the solution: σ_i = σ·exp(N(0, 1)/τ), x_i = x + σ_i·u_i.

    A subclass says how solution and step size follow from their values.
    """

    def __init__(
        self,
        x0: ArrayLike,
        sigma0: float,
        population: int,
        damping_dimension: float | None,
        seed: int,
    ) -> None:
        super().__init__(x0, sigma0, seed)
        self.population = population
        self.tau = damping(damping_dimension, self._solution.size)
        self._child_sigmas = np.full(population, self._sigma)

    def _sample(self) -> Floats:
        delta = self._rng.standard_normal(self.population)  # ~ N(0, 1)
        self._child_sigmas = self._sigma * np.exp(delta / self.tau)
        children = self._rng.standard_normal(
            (self.population, self._solution.size), dtype=np.float32
        )  # ~ N(0, I)
        children *= self._child_sigmas.astype(np.float32)[:, None]
        children += self._solution
        return children
