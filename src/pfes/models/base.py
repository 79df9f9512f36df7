"""The one contract: what the black box answers."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.tasks.batch import Batch
from pfes.tasks.spec import Family

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

MAX_BATCH_TOKENS = 8192  # in one pass: bounds the memory of a pass


class LanguageModel(Protocol):
    """A language model that can only be queried."""

    name: str
    family: Family
    tokenizer: Any
    width: int  # e: of the input embedding, not always the hidden size
    max_length: int  # tokens, prompt included

    @property
    def vocabulary(self) -> int:
        """How many tokens have an embedding to start a prompt from."""

    def embed(self, tokens: Sequence[int]) -> Floats:
        """Return the input embeddings of tokens, as `(tokens, width)`."""

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        """Return log-probabilities over the full vocabulary of the verbalizer words.

        `prompts` is `(candidates, length, width)`; length 0 is the template alone. The result is
        `(candidates, examples, words)`.
        """

    def ranks(self, prompts: Floats, batch: Batch) -> tuple[Floats, Ints | None]:
        """Return `logprobs` and, where the model shows them, the words' ranks (1 = top)."""
