"""Estimate the dimension of a cloud of points by maximum likelihood (Levina and Bickel 2004)."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from pfes.analysis.neighbours import (
    COLUMNS,
    Doubles,
    Metric,
    Neighbours,
    Points,
    Standard,
    nearest,
    nearest_of_blocks,
)
from pfes.seeds import stream

RESAMPLES = 1000
GRID = 60  # dimensions of noise to compare with: up to 51,200, each is 1.2 times the last


def intrinsic_dimension(points: ArrayLike, k: int = 20, metric: Metric = "cosine") -> float:
    """Estimate the intrinsic dimension of points `(n, d)` from their `k` nearest neighbours.

    The result is the mean of the maximum-likelihood estimates at each point (Levina and Bickel
    2004). Identical points count once. If the points fill their space, the Euclidean estimate is
    the dimension of that space, but few points underestimate a high dimension: compare with
    `gaussian_estimates`. The cosine distance, 1 − cos, is half the squared Euclidean distance
    between the points' directions, so its estimate is half the Euclidean estimate for these
    directions.
    """
    cloud: Points = np.asarray(points)
    if cloud.ndim != 2 or not np.issubdtype(cloud.dtype, np.floating):
        raise ValueError("points must be a matrix of real numbers, with one point in each row")
    return estimates(nearest(cloud, k, metric), [k])[0].value


@dataclass(frozen=True)
class Estimate:
    """An estimate from `k` neighbours, with a 95 % bootstrap interval over the points."""

    k: int
    value: float
    interval: tuple[float, float]


def estimates(neighbours: Neighbours, ks: Sequence[int]) -> list[Estimate]:
    """Return the estimate for each number of neighbours in `ks`, from one neighbour search."""
    results = []
    for k in ks:
        local = local_dimensions(neighbours.distances, k)
        resamples = stream(0, "bootstrap").integers(len(local), size=(RESAMPLES, len(local)))
        low, high = np.percentile(local[resamples].mean(axis=1), [2.5, 97.5])
        results.append(Estimate(k, float(local.mean()), (float(low), float(high))))
    return results


def local_dimensions(distances: Doubles, k: int) -> Doubles:
    """Return the estimate at each point, from ascending distances `(points, neighbours)`.

    With T_j the distance to the j-th neighbour, the estimate is the inverse of the mean of
    log T_k / T_j over j < k. A point whose k neighbours are all equally far has a mean of zero, and
    hence no estimate: it is left out.
    """
    if not 2 <= k <= distances.shape[1]:
        raise ValueError(f"k must be between 2 and {distances.shape[1]}, not {k}")
    spread = np.log(distances[:, k - 1 : k] / distances[:, : k - 1]).mean(axis=1)
    if not (spread > 0).any():
        raise ValueError(f"no estimate: at every point, all {k} neighbours are equally far")
    return np.asarray(1 / spread[spread > 0])


def gaussian_estimates(
    points: int, dimension: int, ks: Sequence[int], standard: Standard, seed: int = 0
) -> list[Estimate]:
    """Return the estimates for isotropic Gaussian points, as many and of the dimension given.

    Such points fill all dimensions, so their estimate is about the highest that this number of
    points can give.
    """
    noise = stream(seed, "gaussian")
    blocks = (
        noise.standard_normal((points, min(COLUMNS, dimension - start)), dtype=np.float32)
        for start in range(0, dimension, COLUMNS)
    )
    return estimates(nearest_of_blocks(blocks, max(ks), "cosine", standard), ks)


def noise_dimensions(
    measured: Sequence[Estimate], points: int, limit: int, standard: Standard, seed: int = 0
) -> list[float | None]:
    """Return, for each measured estimate, the dimension of isotropic noise with the same estimate.

    This corrects for the small number of points, which lowers the estimate of noise alike. It is
    None where an estimate exceeds even that of noise in `limit` dimensions.
    """
    ks = [estimate.k for estimate in measured]
    lowest = 3 if standard == "vector" else 2  # centring removes one; cosines need two
    candidates = sorted({*np.geomspace(lowest, limit, GRID).round().astype(int).tolist(), limit})

    @cache
    def noise_values(dimension: int) -> list[float]:
        return [e.value for e in gaussian_estimates(points, dimension, ks, standard, seed)]

    dimensions: list[float | None] = []
    for i, estimate in enumerate(measured):
        above = bisect_left(candidates, estimate.value, key=lambda d: noise_values(d)[i])
        if above == len(candidates):
            dimensions.append(None)
        elif above == 0:
            dimensions.append(float(candidates[0]))
        else:
            bracket = candidates[above - 1 : above + 1]
            values = [noise_values(dimension)[i] for dimension in bracket]
            log = np.interp(np.log(estimate.value), np.log(values), np.log(bracket))
            dimensions.append(float(np.exp(log)))
    return dimensions
