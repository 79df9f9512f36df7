"""The base class of the ask/tell optimizers."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float32]
State: TypeAlias = dict[str, Any]


class Optimizer(ABC):
    """Minimises a function of which only values are known.

    A subclass holds the mathematics: `_sample` draws candidates, `_update` learns from their
    values. This class keeps the pending candidates, the best solution seen, and the state.

    `ask` called again before `tell` returns the same candidates. Values that are NaN or infinite
    count as worst: such a candidate is never selected, whatever the others are.
    """

    dtype: ClassVar[type] = np.float32  # of candidates; integers if they are tokens
    cost: ClassVar[int] = 1  # evaluations that a candidate counts as

    def __init__(self, x0: ArrayLike, sigma0: float, seed: int) -> None:
        start: Floats = np.array(x0, dtype=self.dtype)
        if start.ndim != 1 or start.size == 0:
            raise ValueError(f"x0 must be a non-empty vector, not an array of shape {start.shape}")
        if not np.isfinite(start).all():
            raise ValueError("x0 must be finite")
        if not (np.isfinite(sigma0) and sigma0 > 0):
            raise ValueError(f"sigma0 must be positive and finite, not {sigma0}")
        self._solution: Floats = start
        self._sigma = float(sigma0)
        self._best: Floats = start.copy()
        self._best_value = np.inf
        self._rng = np.random.default_rng(seed)
        self._rng_before_ask = self._rng.bit_generator.state
        self._pending: Floats | None = None
        self.stopped: str | None = None  # why the optimizer stopped by itself, if it did

    @property
    def solution(self) -> Floats:
        """The current solution, which a search would return if it ended now."""
        return self._solution

    @property
    def sigma(self) -> float:
        """The global step size."""
        return self._sigma

    @property
    def best(self) -> Floats:
        """The candidate with the lowest value seen so far (x0 before the first `tell`)."""
        return self._best

    @property
    def best_value(self) -> float:
        """The value of `best`; infinite before the first `tell`."""
        return self._best_value

    def ask(self) -> Floats:
        """Return the candidates to evaluate next, as a `(candidates, d)` array."""
        if self._pending is None:
            self._rng_before_ask = self._rng.bit_generator.state
            self._pending = self._sample()
        return self._pending

    def tell(self, values: ArrayLike) -> None:
        """Learn from the values of the candidates last asked for, in their order."""
        if self._pending is None:
            raise RuntimeError("tell() needs candidates: call ask() first")
        losses = np.array(values, dtype=np.float64)  # a copy: the caller's array stays untouched
        if losses.shape != (len(self._pending),):
            raise ValueError(
                f"expected {len(self._pending)} values, one per candidate, "
                f"got an array of shape {losses.shape}"
            )
        losses[~np.isfinite(losses)] = np.inf
        best_index = int(losses.argmin())
        if losses[best_index] < self._best_value:
            self._best = self._pending[best_index].copy()
            self._best_value = float(losses[best_index])
        self._update(self._pending, losses)
        self._pending = None

    def state(self) -> State:
        """Return arrays and plain values, from which `load_state` continues bit for bit.

        Candidates that were asked for but not told are not included: they are drawn again.
        """
        rng = self._rng.bit_generator.state if self._pending is None else self._rng_before_ask
        return {
            "solution": self._solution.copy(),
            "best": self._best.copy(),
            "sigma": self._sigma,
            "best_value": self._best_value,
            "rng": rng,
        }

    def load_state(self, state: State) -> None:
        """Continue from what `state` returned, in an optimizer made with the same arguments."""
        if state["solution"].shape != self._solution.shape:
            raise ValueError(
                f"the state is for {state['solution'].size} dimensions, not {self._solution.size}"
            )
        self._solution = state["solution"].astype(self.dtype)
        self._best = state["best"].astype(self.dtype)
        self._sigma = float(state["sigma"])
        self._best_value = float(state["best_value"])
        self._rng.bit_generator.state = state["rng"]
        self._pending = None

    @abstractmethod
    def _sample(self) -> Floats:
        """Draw the next candidates."""

    @abstractmethod
    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        """Update solution and step size; `losses` are finite or +inf."""


def damping(dimension: float | None, d: int) -> float:
    """Return τ = √(2·dimension), or √(2·d) if it is None; the larger, the slower σ adapts."""
    if dimension is not None and not dimension > 0:
        raise ValueError(f"damping_dimension must be positive, not {dimension}")
    return float(np.sqrt(2.0 * (d if dimension is None else dimension)))
