"""How many dimensions a cloud of points has: maximum likelihood, by Levina and Bickel (2004)."""

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
GRID = 60  # dimensions of noise to compare with: each 1.2 times the one before, up to 51,200


def intrinsic_dimension(points: ArrayLike, k: int = 20, metric: Metric = "cosine") -> float:
    """Estimate the intrinsic dimension of points `(n, d)` from their `k` nearest neighbours.

    The mean over points of the maximum-likelihood estimate at each (Levina and Bickel 2004). Points
    at no distance from another count once. Of a cloud that fills its space the Euclidean estimate
    is the dimension of that, up to where so few points cannot tell: compare with
    `gaussian_estimates`. The cosine distance, 1 − cos, is half of a squared distance between
    directions, so its estimate is half of the Euclidean one of the directions.
    """
    cloud: Points = np.asarray(points)
    if cloud.ndim != 2 or not np.issubdtype(cloud.dtype, np.floating):
        raise ValueError("points must be a matrix of real numbers, one point a row")
    return estimates(nearest(cloud, k, metric), [k])[0].value


@dataclass(frozen=True)
class Estimate:
    """An estimate from `k` neighbours, with a 95 % bootstrap interval over the points."""

    k: int
    value: float
    interval: tuple[float, float]


def estimates(found: Neighbours, ks: Sequence[int]) -> list[Estimate]:
    """Return the estimate for each number of neighbours, all from one search."""
    made = []
    for k in ks:
        local = local_dimensions(found.distances, k)
        drawn = stream(0, "bootstrap").integers(len(local), size=(RESAMPLES, len(local)))
        low, high = np.percentile(local[drawn].mean(axis=1), [2.5, 97.5])
        made.append(Estimate(k, float(local.mean()), (float(low), float(high))))
    return made


def local_dimensions(distances: Doubles, k: int) -> Doubles:
    """Return the estimate at each point, from ascending distances `(points, neighbours)`.

    The inverse of the mean of log T_k / T_j over j < k. Where all k neighbours are equally far,
    that mean is zero and says nothing: such a point is left out.
    """
    if not 2 <= k <= distances.shape[1]:
        raise ValueError(f"k must be between 2 and {distances.shape[1]}, not {k}")
    spread = np.log(distances[:, k - 1 : k] / distances[:, : k - 1]).mean(axis=1)
    if not (spread > 0).any():
        raise ValueError(f"at every point all {k} neighbours are equally far")
    return np.asarray(1 / spread[spread > 0])


def gaussian_estimates(
    points: int, dimension: int, ks: Sequence[int], standard: Standard, seed: int = 0
) -> list[Estimate]:
    """Return what the estimator says of isotropic Gaussian points of the same number and dimension.

    Such a cloud has every dimension there is. What is estimated of it is the most that so many
    points can show.
    """
    noise = stream(seed, "gaussian")
    blocks = (
        noise.standard_normal((points, min(COLUMNS, dimension - start)), dtype=np.float32)
        for start in range(0, dimension, COLUMNS)
    )
    return estimates(nearest_of_blocks(blocks, max(ks), "cosine", standard), ks)


def noise_dimensions(
    found: Sequence[Estimate], points: int, limit: int, standard: Standard, seed: int = 0
) -> list[float | None]:
    """Return, for each estimate, the dimension of isotropic noise that gives the same one.

    That takes out of an estimate what so few points do to it. None stands where noise of `limit`
    dimensions has no more: at the ceiling, nothing can be told.
    """
    ks = [one.k for one in found]
    least = 3 if standard == "vector" else 2  # centring takes a dimension; a line has no directions
    sizes = sorted({*np.geomspace(least, limit, GRID).round().astype(int).tolist(), limit})

    @cache
    def of_noise(size: int) -> list[float]:
        return [one.value for one in gaussian_estimates(points, size, ks, standard, seed)]

    made: list[float | None] = []
    for number, one in enumerate(found):
        above = bisect_left(sizes, one.value, key=lambda size: of_noise(size)[number])
        if above == len(sizes):
            made.append(None)
        elif above == 0:
            made.append(float(sizes[0]))
        else:
            around = sizes[above - 1 : above + 1]
            values = [of_noise(size)[number] for size in around]
            made.append(float(np.exp(np.interp(np.log(one.value), np.log(values), np.log(around)))))
    return made
