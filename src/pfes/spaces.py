"""Where a search moves: the full prompt space, or a random subspace of it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pfes.models.base import Floats
from pfes.seeds import stream


@dataclass(frozen=True)
class FullSpace:
    """The prompt's own space: a search's vectors are prompts."""

    origin: Floats  # (d,) the initial prompt

    @property
    def start(self) -> Floats:
        """The vector that stands for the initial prompt."""
        return self.origin

    def expand(self, vectors: Floats) -> Floats:
        """Return the prompts `(n, d)` that vectors stand for."""
        return vectors


@dataclass(frozen=True)
class RandomSubspace:
    """BBT's space: x_init + A·z with A_ij ~ U[−1/√d̃, 1/√d̃], fixed by the seed."""

    origin: Floats  # (d,) the initial prompt
    dimension: int  # d̃
    seed: int

    @property
    def start(self) -> Floats:
        """The vector that stands for the initial prompt: z = 0."""
        return np.zeros(self.dimension, dtype=np.float32)

    @cached_property
    def basis(self) -> Floats:
        """Aᵀ, `(d̃, d)`: drawn when first used, and again after a resume, never stored."""
        shape = (self.dimension, self.origin.size)
        drawn = stream(self.seed, "subspace").random(shape, dtype=np.float32)  # ~ U[0, 1)
        drawn -= np.float32(0.5)
        drawn *= np.float32(2 / np.sqrt(self.dimension))
        return drawn

    def expand(self, vectors: Floats) -> Floats:
        """Return the prompts `(n, d)` that vectors `(n, d̃)` stand for, by one matrix product."""
        return self.origin + vectors @ self.basis


Space = FullSpace | RandomSubspace
