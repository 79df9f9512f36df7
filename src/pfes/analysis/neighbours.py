"""Distances to the nearest neighbours of every point, of clouds that do not fit in memory twice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Metric: TypeAlias = Literal["cosine", "euclidean"]
Standard: TypeAlias = Literal["coordinate", "vector", "none"]
Doubles: TypeAlias = NDArray[np.float64]
Points: TypeAlias = NDArray[np.floating]

COLUMNS = 4096  # coordinates compared at once: bounds the memory, and keeps the products large
TINY = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}  # a distance that is rounding


@dataclass(frozen=True)
class Neighbours:
    """What a neighbour search found among the points that differ."""

    distances: Doubles  # (distinct points, neighbours), ascending
    duplicates: int  # points left out: at no distance from an earlier one, or without a direction


def nearest(
    points: Points, count: int, metric: Metric = "cosine", standard: Standard = "none"
) -> Neighbours:
    """Return each point's distances to its `count` nearest neighbours.

    `points` is `(n, d)`, in memory or mapped; it is read once, a block of coordinates at a time,
    and never copied whole. `standard` gives every coordinate (over the points) or every vector
    (over its coordinates) zero mean and unit variance first.
    """
    return nearest_of_blocks(_blocks(points, metric), count, metric, standard)


def _blocks(points: Points, metric: Metric) -> Iterator[Points]:
    # Euclidean distances are differences of large products: they want the precision
    exact = metric == "euclidean" or points.dtype == np.float64
    for start in range(0, points.shape[1], COLUMNS):
        yield np.array(
            points[:, start : start + COLUMNS], dtype=np.float64 if exact else np.float32
        )


def nearest_of_blocks(
    blocks: Iterable[Points], count: int, metric: Metric, standard: Standard
) -> Neighbours:
    """Do what `nearest` does, of points given as blocks of coordinates, each `(n, columns)`.

    The blocks are changed.
    """
    products, tiny = _products(blocks, standard)
    squares = products.diagonal().copy()
    if metric == "cosine":
        lost = squares <= 0  # a vector of zeros has no direction
        lengths = np.sqrt(np.where(lost, 1, squares))
        distances = products
        distances /= -lengths[:, None]
        distances /= lengths[None, :]
        distances += 1
    else:
        lost = np.zeros(len(squares), dtype=bool)
        distances = products
        distances *= -2
        distances += squares[:, None]
        distances += squares[None, :]
        np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        tiny = np.sqrt(tiny * squares.mean())
    np.fill_diagonal(distances, 0)
    first = (distances <= tiny).argmax(axis=1)  # the first point that is no other than this one
    keep = (first == np.arange(len(first))) & ~lost
    if not keep.all():
        distances = distances[np.ix_(keep, keep)]
    if len(distances) <= count:
        raise ValueError(f"{count} neighbours need more points that differ than {len(distances)}")
    np.fill_diagonal(distances, np.inf)
    closest = np.empty((len(distances), count))
    for row, own in zip(closest, distances, strict=True):
        row[:] = np.partition(own, count - 1)[:count]
    closest.sort(axis=1)
    return Neighbours(closest, int((~keep).sum()))


def _products(blocks: Iterable[Points], standard: Standard) -> tuple[Doubles, float]:
    """Return the inner products of all pairs of points, and what counts as no distance.

    Products of a block are single precision where its points are; their sum never is.
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
        own = block.sum(axis=1, dtype=np.float64)
        sums = own if sums is None else sums + own
        columns, tiny = columns + block.shape[1], TINY[block.dtype]
    assert total is not None
    assert sums is not None
    if standard == "vector":  # centring a vector takes its mean out of every product
        total -= np.outer(sums / columns, sums)
    return total, tiny
