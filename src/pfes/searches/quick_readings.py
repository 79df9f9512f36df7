"""Offsets and slopes of many candidates at once: what a search judges each of them after.

The same problems as in `fit_reading`, small enough to solve with all second derivatives.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Ints
from pfes.searches.fit_reading import (
    GRADIENT,
    LEAST_SLOPE,
    OFFSET_RIDGE,
    SLOPE_RIDGE,
    SMALLEST_STEP,
    STEPS,
)
from pfes.searches.log_space import Doubles, bounded, log_softmax, log_sum_exp

Derivatives: TypeAlias = tuple[Doubles, Doubles]  # gradients and Hessians


def best_offsets(logprobs: NDArray[np.floating[Any]], labels: Ints) -> Doubles:
    """Return the best offsets `(candidates, labels)` of many candidates at once.

    `logprobs` is `(candidates, examples, labels)`. The same offsets as the rung `offset`. Of the
    labels only their shares matter: see `matching_offsets`.
    """
    count = logprobs.shape[2]
    return matching_offsets(logprobs, np.bincount(labels, minlength=count) / len(labels))


def matching_offsets(logprobs: NDArray[np.floating[Any]], shares: Doubles) -> Doubles:
    """Return offsets after which each label has its share of the probability, over all texts.

    `logprobs` is `(candidates, texts, labels)`. These offsets also minimise the cross-entropy of
    labels that have these shares, whichever text has which label: so texts need no labels here. The
    offsets of a candidate with an answer that is not a number are NaN.
    """
    answers = bounded(logprobs)
    texts = answers.mean(axis=1, keepdims=True)
    centred = answers - texts
    count = centred.shape[2]
    diagonal = np.arange(count)

    def values(rows: Ints, at: Doubles) -> Doubles:
        spent = log_sum_exp(centred[rows] - at[:, None]).mean(axis=1) + at @ shares
        return np.asarray(spent + OFFSET_RIDGE / 2 * (at**2).sum(axis=1))

    def derivatives(rows: Ints, at: Doubles) -> Derivatives:
        given = np.exp(log_softmax(centred[rows] - at[:, None]))  # (rows, texts, labels)
        gradient = shares - given.mean(axis=1) + OFFSET_RIDGE * at
        hessian = -np.einsum("cni,cnj->cij", given, given) / given.shape[1]
        hessian[:, diagonal, diagonal] += given.mean(axis=1) + OFFSET_RIDGE
        return gradient, hessian

    start = np.zeros((len(centred), count))
    start[~np.isfinite(centred).all(axis=(1, 2))] = np.nan
    return np.asarray(_minimum(start, values, derivatives) + texts[:, 0])


def sloped_scores(logprobs: NDArray[np.floating[Any]], labels: Ints) -> Doubles:
    """Return the scores of many candidates, each after its own best slope and offsets.

    `logprobs` is `(candidates, examples, labels)`. The same as those of the rung `slope`.
    """
    sloped = best_slopes(logprobs, labels)[:, None, None] * bounded(logprobs)
    return np.asarray(sloped - best_offsets(sloped, labels)[:, None])


def best_slopes(logprobs: NDArray[np.floating[Any]], labels: Ints) -> Doubles:
    """Return the best slopes `(candidates,)` of many candidates at once, beside best offsets."""
    answers = bounded(logprobs)
    centred = answers - answers.mean(axis=1, keepdims=True)
    candidates, examples, count = centred.shape
    index, diagonal = np.arange(examples), np.arange(count)
    target = np.zeros((examples, count))
    target[index, labels] = 1
    ridge = np.concatenate([[SLOPE_RIDGE], np.full(count, OFFSET_RIDGE)])
    usual = np.concatenate([[1.0], np.zeros(count)])  # what the ridge pulls to

    def scores(rows: Ints, at: Doubles) -> Doubles:
        return np.asarray(at[:, :1, None] * centred[rows] - at[:, None, 1:])

    def values(rows: Ints, at: Doubles) -> Doubles:
        right = log_softmax(scores(rows, at))[:, index, labels]
        return np.asarray((ridge * (at - usual) ** 2).sum(axis=1) / 2 - right.mean(axis=1))

    def derivatives(rows: Ints, at: Doubles) -> Derivatives:
        given = np.exp(log_softmax(scores(rows, at)))  # (rows, examples, labels)
        residual, own = given - target, centred[rows]
        slopes = (residual * own).sum(axis=2).mean(axis=1)
        gradient = np.column_stack([slopes, -residual.mean(axis=1)]) + ridge * (at - usual)
        mean = (given * own).sum(axis=2, keepdims=True)
        around = given * (own - mean)  # how each share changes with the slope
        hessian = np.empty((len(rows), 1 + count, 1 + count))
        hessian[:, 0, 0] = (around * own).sum(axis=2).mean(axis=1)
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = -around.mean(axis=1)
        hessian[:, 1:, 1:] = -np.einsum("cni,cnj->cij", given, given) / examples
        hessian[:, 1 + diagonal, 1 + diagonal] += given.mean(axis=1)
        hessian[:, np.arange(1 + count), np.arange(1 + count)] += ridge
        return gradient, hessian

    start = np.tile(usual, (candidates, 1))
    start[~np.isfinite(centred).all(axis=(1, 2))] = np.nan
    return np.maximum(_minimum(start, values, derivatives)[:, 0], LEAST_SLOPE)


def _minimum(
    start: Doubles,
    values: Callable[[Ints, Doubles], Doubles],
    derivatives: Callable[[Ints, Doubles], Derivatives],
) -> Doubles:
    """Return the minima of many convex problems, `(problems, unknowns)`, by Newton's method.

    Both functions take the numbers of some problems and where each of them is. One that starts at
    NaN stays there.
    """
    found = start.copy()
    open_ = np.asarray(np.isfinite(start).all(axis=1))
    for _ in range(STEPS):
        rows = np.flatnonzero(open_)
        if not len(rows):
            break
        at = found[rows]
        gradient, hessian = derivatives(rows, at)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        decrease = (gradient * step).sum(axis=1)
        before, size = values(rows, at), np.ones(len(rows))
        while True:
            after = values(rows, at - size[:, None] * step)
            worse = (after > before - 1e-4 * size * decrease) & (size > SMALLEST_STEP)
            if not worse.any():
                break
            size[worse] /= 2
        moved = size > SMALLEST_STEP
        found[rows[moved]] = (at - size[:, None] * step)[moved]
        open_[rows[~moved | (np.abs(gradient).max(axis=1) < GRADIENT)]] = False
    return found
