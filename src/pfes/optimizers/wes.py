"""WES: evolution strategy in which every child counts, with optimal weights (Arnold, 2006)."""

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfes.optimizers.base import Floats
from pfes.optimizers.self_adaptive import SelfAdaptive

STEP = 2.5  # ours, measured (docs/methods.md): the step on a flat function, in children's steps


class WES(SelfAdaptive):
    """Moves towards the good children and away from the bad ones, each by its rank.

    SaES takes the mean of the best few and forgets the others. Here child i of λ, by rank, has the
    weight that it has in the best step on a linear function of many dimensions: the expected value
    of the i-th best of λ normal numbers. The weights of a whole generation have the length `STEP`.
    The step size adapts as in SaES, with the same weights. A child without a finite value has none.

    Examples:
        >>> import numpy as np
        >>> es = WES(np.ones(1000), sigma0=0.1, damping_dimension=50)
        >>> for _ in range(30):
        ...     x = es.ask()
        ...     es.tell((x**2).sum(axis=1))
        >>> float((es.solution**2).sum()) < 700
        True
    """

    def __init__(
        self,
        x0: ArrayLike,
        sigma0: float,
        population: int = 20,
        damping_dimension: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(x0, sigma0, population, damping_dimension, seed)
        if population < 2:
            raise ValueError(f"need 2 children to tell good from bad, not {population}")
        self._length = float(np.sqrt((rank_scores(population) ** 2).sum()))

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        scores = np.zeros(len(losses))
        finite = np.isfinite(losses)
        scores[finite] = scores_by_value(losses[finite])
        gained = scores[scores > 0].sum()
        if gained == 0:  # all are equal, or there is but one
            return
        weights = (STEP / self._length * scores).astype(np.float32)
        self._solution = self._solution + weights @ (candidates - self._solution)
        longer = np.log(self._child_sigmas / self._sigma)
        self._sigma *= float(np.exp(scores @ longer / gained))


def rank_scores(count: int) -> NDArray[np.float64]:
    """Return the expected values of `count` normal numbers in order, the largest first.

    To a few thousandths (Blom, 1958).
    """
    normal = NormalDist()
    parts = (np.arange(1, count + 1) - 0.375) / (count + 0.25)
    return np.array([-normal.inv_cdf(part) for part in parts])


def scores_by_value(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score of each value by its rank; equal values have the mean of theirs."""
    if not len(values):
        return np.zeros(0)
    kinds, kind, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(kinds) == 1:
        return np.zeros(len(values))  # and not what rounding leaves
    sums = np.add.reduceat(rank_scores(len(values)), np.cumsum(counts) - counts)
    return np.asarray((sums / counts)[kind])
