"""Distances to each point's nearest neighbours, for points that fit in memory only once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Metric: TypeAlias = Literal["cosine", "euclidean"]
Standard: TypeAlias = Literal["coordinate", "vector", "none"]
Doubles: TypeAlias = NDArray[np.float64]
Points: TypeAlias = NDArray[np.floating]

COLUMNS = 4096  # coordinates in a block: few enough for memory, enough for fast products
TINY = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}  # at most a rounding error


@dataclass(frozen=True)
class Neighbours:
    """The result of a neighbour search among distinct points."""

    distances: Doubles  # (distinct points, neighbours), ascending
    duplicates: int  # points left out: identical to an earlier one, or zero (cosine only)


def nearest(
    points: Points, count: int, metric: Metric = "cosine", standard: Standard = "none"
) -> Neighbours:
    """Return each point's distances to its `count` nearest neighbours.

    `points` is `(n, d)`, in memory or memory-mapped; it is read once, in blocks of coordinates,
    and never copied as a whole. `standard` says what is first scaled to zero mean and unit
    variance: every coordinate (over the points), every vector (over its coordinates), or none.
    """
    return nearest_of_blocks(_blocks(points, metric), count, metric, standard)


def _blocks(points: Points, metric: Metric) -> Iterator[Points]:
    # Euclidean distances are small differences of large products, which need double precision
    exact = metric == "euclidean" or points.dtype == np.float64
    for start in range(0, points.shape[1], COLUMNS):
        yield np.array(
            points[:, start : start + COLUMNS], dtype=np.float64 if exact else np.float32
        )


def nearest_of_blocks(
    blocks: Iterable[Points], count: int, metric: Metric, standard: Standard
) -> Neighbours:
    """Do the same as `nearest` for points given as blocks of coordinates, each `(n, columns)`.

    The blocks may be changed in place.
    """
    products, tiny = _products(blocks, standard)
    squares = products.diagonal().copy()
    if metric == "cosine":
        is_zero = squares <= 0  # a vector of zeros has no direction
        lengths = np.sqrt(np.where(is_zero, 1, squares))
        distances = products
        distances /= -lengths[:, None]
        distances /= lengths[None, :]
        distances += 1
    else:
        is_zero = np.zeros(len(squares), dtype=bool)
        distances = products
        distances *= -2
        distances += squares[:, None]
        distances += squares[None, :]
        np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        tiny = np.sqrt(tiny * squares.mean())
    np.fill_diagonal(distances, 0)
    first = (distances <= tiny).argmax(axis=1)  # index of the first identical point, or its own
    keep = (first == np.arange(len(first))) & ~is_zero
    if not keep.all():
        distances = distances[np.ix_(keep, keep)]
    if len(distances) <= count:
        raise ValueError(f"{count} neighbours need more than {len(distances)} distinct points")
    np.fill_diagonal(distances, np.inf)
    closest = np.empty((len(distances), count))
    for row, row_distances in zip(closest, distances, strict=True):
        row[:] = np.partition(row_distances, count - 1)[:count]
    closest.sort(axis=1)
    return Neighbours(closest, int((~keep).sum()))


def _products(blocks: Iterable[Points], standard: Standard) -> tuple[Doubles, float]:
    """Return the inner products of all pairs of points, and the distance that counts as zero.

    The products within a block have the precision of its points; they are summed in double.
    """
    total: Doubles | None = None
    sums: Doubles | None = None
    columns, tiny = 0, 0.0
    for block in blocks:
        if standard == "coordinate":
            block -= block.mean(axis=0)
            spread = block.std(axis=0)
            block /= np.where(spread > 0, spread, 1)
        part = block @ block.T  # numpy sees the symmetry and does half the work
        total = part.astype(np.float64) if total is None else np.add(total, part, out=total)
        block_sums = block.sum(axis=1, dtype=np.float64)
        sums = block_sums if sums is None else sums + block_sums
        columns, tiny = columns + block.shape[1], TINY[block.dtype]
    assert total is not None
    assert sums is not None
    if standard == "vector":  # centring subtracts the means from every product
        total -= np.outer(sums / columns, sums)
    return total, tiny
