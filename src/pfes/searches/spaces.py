"""Where a search moves, and the prompts that its vectors stand for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Floats, LanguageModel
from pfes.seeds import stream


@dataclass(frozen=True)
class FullSpace:
    """The prompt's own space: a search's vectors are prompts."""

    origin: Floats  # (length, width): the initial prompt

    @property
    def start(self) -> Floats:
        """The vector that stands for the initial prompt."""
        return self.origin.reshape(-1)

    def prompts(self, vectors: Floats) -> Floats:
        return vectors.reshape(len(vectors), *self.origin.shape)

    def text(self, vector: Floats) -> None:
        return None


@dataclass(frozen=True)
class RandomSubspace:
    """BBT's space: x_init + A·z with A_ij ~ U[−1/√d̃, 1/√d̃], fixed by the seed."""

    origin: Floats  # (length, width): the initial prompt
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

    def prompts(self, vectors: Floats) -> Floats:
        """By one matrix product for all vectors `(n, d̃)`."""
        moved = self.origin.reshape(-1) + vectors @ self.basis
        return moved.reshape(len(vectors), *self.origin.shape)

    def text(self, vector: Floats) -> None:
        return None


@dataclass(frozen=True)
class TokenSpace:
    """Prompts made of tokens; a search's vectors are tokens of the vocabulary of `decode`.

    Tokens of another vocabulary than the model's travel as text, and the model's own tokens of
    that text, at most `longest`, make the prompt: lengths may then differ.
    """

    model: LanguageModel
    decode: Callable[[list[int]], str]
    foreign: bool
    longest: int

    def prompts(self, vectors: NDArray[Any]) -> list[Floats]:
        return [self.model.embed(self._own(tokens.tolist())) for tokens in vectors]

    def text(self, vector: NDArray[Any]) -> str:
        return self.decode(vector.tolist())

    def _own(self, tokens: list[int]) -> list[int]:
        if not self.foreign:
            return tokens
        text = self.decode(tokens)
        return list(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])[
            : self.longest
        ]
