"""Fitting a reading to labelled answers: convex problems, solved by Newton's method.

The mean cross-entropy of `s·(L − c) − b + Z·V` is minimised with a ridge on b, on s − 1 and on V. c
comes from texts without their labels: it is the mean of L over the examples, or the offsets that
further texts ask for. So a constant that is added to a label's log-probabilities changes nothing. Z
are the standardised answer words in as few coordinates as there are examples: their dual form.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Ints
from pfes.searches.log_space import Doubles, bounded, log_softmax
from pfes.searches.reading import PLAIN, Reading, Rung

OFFSET_RIDGE = 1e-3  # keeps offsets finite where labels can be separated
CENTER_EXAMPLES = 10  # how many labelled examples count as much as further texts, for offsets
SLOPE_RIDGE = 1e-2  # pulls the slope towards 1
LEAST_SLOPE = 0.05
STEPS = 100  # of Newton's method, at most; about ten are usual
GRADIENT = 1e-8  # a largest entry of the gradient below which a problem counts as solved
SMALLEST_STEP = 1e-6


def fit_reading(
    logprobs: NDArray[np.floating[Any]],
    labels: Ints,
    rung: Rung,
    words: tuple[int, ...] = (),
    strength: float = 1.0,
    center: Doubles | None = None,
    features: "Features | None" = None,
) -> Reading:
    """Fit one rung to log-probabilities `(examples, labels + words)`.

    `center` are offsets found without labels, on more texts than these: the offsets stay near them.
    `features` are those of the same answers, where several strengths are fitted.
    """
    if rung == "plain":
        return PLAIN
    answers = bounded(logprobs)
    count = logprobs.shape[1] - len(words)
    own = answers[:, :count]
    texts = own.mean(axis=0) if center is None else center  # c
    pull = OFFSET_RIDGE if center is None else CENTER_EXAMPLES / len(own)
    coordinates = np.zeros((len(own), 0))
    if rung == "words":
        features = features or Features(logprobs)
        coordinates = features.coordinates
    problem = _Problem(own - texts, labels, coordinates, strength, pull)
    slope, offsets, coefficients = problem.split(problem.solve(free_slope=rung != "offset"))
    if slope < LEAST_SLOPE:
        slope, offsets, coefficients = problem.split(
            problem.solve(free_slope=False, slope=LEAST_SLOPE)
        )
    offsets = slope * texts + offsets
    if rung != "words":
        return Reading(rung, float(slope), offsets)
    assert features is not None
    weights = features.weights(coefficients)
    fitted = (words, features.centers, weights, features.spreads)
    return Reading(rung, float(slope), offsets, *fitted)


class Features:
    """Standardised answer words, divided by √M, in coordinates of the examples' own span."""

    def __init__(self, logprobs: NDArray[np.floating[Any]]) -> None:
        answers = bounded(logprobs)
        self.centers = answers.mean(axis=0)
        spread = self.spreads = answers.std(axis=0)
        scale = np.sqrt(answers.shape[1]) * np.where(spread > 1e-6, spread, np.inf)
        self._scale = scale
        left, sizes, self._right = np.linalg.svd(
            (answers - self.centers) / scale, full_matrices=False
        )
        self.coordinates = left * sizes  # (examples, at most as many)

    def weights(self, coefficients: Doubles) -> Doubles:
        """Return weights of the answer words from those of the coordinates."""
        return np.asarray(self._right.T @ coefficients / self._scale[:, None])


class _Problem:
    """The mean cross-entropy with its ridges; the unknowns are s, b and V in one vector."""

    def __init__(
        self,
        centred: Doubles,
        labels: Ints,
        coordinates: Doubles,
        strength: float,
        pull: float,
    ) -> None:
        self.centred, self.labels, self.coordinates = centred, labels, coordinates
        self.examples, self.count = centred.shape
        self.target = np.zeros_like(centred)
        self.target[np.arange(self.examples), labels] = 1
        weights = np.full(coordinates.shape[1] * self.count, strength)
        self.ridge = np.concatenate([[SLOPE_RIDGE], np.full(self.count, pull), weights])

    def split(self, unknowns: Doubles) -> tuple[float, Doubles, Doubles]:
        """Return slope, offsets and coefficients."""
        end = 1 + self.count
        return unknowns[0], unknowns[1:end], unknowns[end:].reshape(-1, self.count)

    def solve(self, free_slope: bool, slope: float = 1.0) -> Doubles:
        """Return the minimum; a slope that is not free stays where it is."""
        unknowns = np.zeros(len(self.ridge))
        unknowns[0] = slope
        free = np.ones(len(unknowns))
        free[0] = free_slope
        for _ in range(STEPS):
            logs = log_softmax(self._scores(unknowns))
            gradient = free * (self._back(np.exp(logs) - self.target) + self._pull(unknowns))
            if np.abs(gradient).max() < GRADIENT:
                break
            step = _conjugate_gradients(self._curvature(np.exp(logs), free), gradient)
            size, before, decrease = 1.0, self._value(unknowns), gradient @ step
            while self._value(unknowns - size * step) > before - 1e-4 * size * decrease:
                size /= 2
                if size < SMALLEST_STEP:  # as exact as numbers allow
                    return unknowns
            unknowns = unknowns - size * step
        return unknowns

    def _scores(self, unknowns: Doubles) -> Doubles:
        slope, offsets, coefficients = self.split(unknowns)
        return np.asarray(slope * self.centred - offsets + self.coordinates @ coefficients)

    def _pull(self, unknowns: Doubles) -> Doubles:
        """Return the gradient of the ridges; that of the slope is around 1."""
        pulled = unknowns.copy()
        pulled[0] -= 1
        return np.asarray(self.ridge * pulled)

    def _value(self, unknowns: Doubles) -> float:
        logs = log_softmax(self._scores(unknowns))[np.arange(self.examples), self.labels]
        pulled = unknowns.copy()
        pulled[0] -= 1
        return float(-logs.mean() + (self.ridge * pulled**2).sum() / 2)

    def _back(self, residual: Doubles) -> Doubles:
        """Return the gradient with respect to the unknowns from that of the scores."""
        parts = (
            [(residual * self.centred).sum()],
            -residual.sum(axis=0),
            (self.coordinates.T @ residual).ravel(),
        )
        return np.asarray(np.concatenate(parts) / self.examples)

    def _curvature(self, shares: Doubles, free: Doubles) -> Callable[[Doubles], Doubles]:
        """Return the product with the Hessian, which is never formed."""

        def product(direction: Doubles) -> Doubles:
            change = self._scores(direction)
            residual = shares * (change - (shares * change).sum(axis=1, keepdims=True))
            return np.asarray(free * (self._back(residual) + self.ridge * direction))

        return product


def _conjugate_gradients(product: Callable[[Doubles], Doubles], target: Doubles) -> Doubles:
    """Solve `product(x) = target` nearly enough for a step of Newton's method."""
    solution = np.zeros_like(target)
    residual, direction = target.copy(), target.copy()
    size = residual @ residual
    goal = size * min(0.01, float(np.sqrt(size)))  # tighter near the minimum
    for _ in range(len(target)):
        if size <= goal:
            break
        curved = product(direction)
        length = size / (direction @ curved)
        solution += length * direction
        residual -= length * curved
        after = residual @ residual
        direction = residual + after / size * direction
        size = after
    return solution
