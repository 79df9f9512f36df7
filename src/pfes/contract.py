"""The one contract: what a language model that can only be queried is asked, and answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.errors import SettingError

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

KEPT = 2**25  # answers at once, where the whole vocabulary is asked for: 128 megabytes

Family = Literal["masked", "causal"]
Interface = Literal["completions", "chat"]
# Of the prompt: in front of the text, behind everything, or between the text and the template's end
Placement = Literal["prefix", "suffix", "middle"]


class Texts:
    """Stands for the texts of a batch: what a model keeps for them, it keeps while this lives."""


@dataclass(frozen=True)
class Written:
    """An example as text, for models that take only text."""

    text: str  # all of it, as a completion has it
    turns: tuple[str, ...]  # as a chat has it: instruction, question, answer, …, question


@dataclass(frozen=True, eq=False)
class Batch:
    """Encoded examples: all that `LanguageModel.logprobs` needs beside the prompts.

    `answers` are positions in `token_ids`, and in `end` behind them, before a prompt is put in.
    """

    token_ids: tuple[tuple[int, ...], ...]  # one row per example, with special tokens
    answers: tuple[int, ...]  # the position in each row at which the answer is read
    words: tuple[int, ...]  # the token of each label's verbalizer word
    labels: Ints  # (examples,)
    placement: Placement = "prefix"
    texts: Texts = field(default_factory=Texts)  # the same for batches that differ by words alone
    end: tuple[int, ...] = ()  # for `middle`: what follows every row, and the prompt behind it
    written: tuple[Written, ...] = ()  # one per example, where the model takes only text

    def take(self, examples: Sequence[int] | Ints) -> "Batch":
        """Return some of the examples, in the order given."""
        index = list(map(int, examples))
        return replace(
            self,
            token_ids=tuple(self.token_ids[i] for i in index),
            answers=tuple(self.answers[i] for i in index),
            labels=self.labels[index],
            texts=Texts(),
            written=tuple(self.written[i] for i in index) if self.written else (),
        )

    def in_parts(self, size: int) -> "list[Batch]":
        """Return the examples in order, in batches of at most `size`."""
        starts = range(0, len(self), size)
        return [self.take(range(start, min(start + size, len(self)))) for start in starts]

    def with_words(self, words: Sequence[int]) -> "Batch":
        """Return the batch with further words to be answered, after the verbalizer words."""
        return replace(self, words=(*self.words, *words)) if words else self

    def ending(self, prompt_length: int) -> tuple[int, ...]:
        """Return the tokens behind a prompt; it takes the place of the first one of `end`."""
        return self.end[1:] if prompt_length else self.end

    def __len__(self) -> int:
        return len(self.token_ids)


class LanguageModel(ABC):
    """A language model that can only be queried.

    A model of your own needs the attributes, `vocabulary`, `embed` and `logprobs`; the rest has
    defaults.
    """

    name: str
    family: Family
    tokenizer: Any  # as in transformers
    width: int  # e: of the input embedding, which is not always the hidden size
    max_length: int  # tokens that the model takes, prompt included
    precision: str | None = None  # of the weights, such as float32; None where nobody says
    parameters: int | None = None  # how many the model has; None where nobody says
    has_gradients: bool = False  # whether `gradient` can be called: no search needs it
    # Whether a prompt may be any embeddings. If not, `embed` spells tokens as text, in a way of the
    # model's own, and a prompt is something that `embed` has returned.
    takes_embeddings: bool = True
    # Of a service that takes only text:
    interface: Interface | None = None  # how it is asked
    tokens_of_a_piece: float = 1.0  # where its own tokenizer is not known, about
    sent: str | None = None  # what this session has sent to it, in a sentence

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many tokens have an embedding to start a prompt from."""

    @abstractmethod
    def embed(self, tokens: Sequence[int]) -> Floats:
        """Return the input embeddings of tokens, as `(tokens, width)`."""

    @abstractmethod
    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        """Return log-probabilities over the full vocabulary of the verbalizer words.

        A service that lists only a few words gives the others the most that they can have.
        `prompts` is `(candidates, length, width)`; length 0 is the template alone. The result is
        `(candidates, examples, words)`.
        """

    def ranks(self, prompts: Floats, batch: Batch) -> tuple[Floats, Ints | None]:
        """Return `logprobs` and, where the model shows them, the words' ranks (1 = top)."""
        return self.logprobs(prompts, batch), None

    def likely_answers(
        self, prompt: Floats, batch: Batch, count: int, in_parts: bool = False
    ) -> tuple[list[int], Floats]:
        """Return the `count` most probable further answers, on average over a batch.

        They are tokens that are not among the batch's own words. Also return the log-probabilities
        of the batch's words and of these tokens, `(examples, words + count)`. A model that answers
        for fewer words at a time returns fewer, unless it may be asked `in_parts`.
        """
        everything = tuple(range(self.vocabulary))
        shares = np.zeros(self.vocabulary)
        block = max(1, KEPT // self.vocabulary)
        whole = len(batch) <= block  # the same object: a model has kept work for its texts
        parts = [batch] if whole else batch.in_parts(block)
        for part in parts:
            logprobs = self.logprobs(prompt[None], replace(part, words=everything))[0]
            for row in logprobs:  # one by one, so that only one is there twice
                shares += np.exp(row, dtype=np.float64)
        shares[list(batch.words)] = -1
        likely = np.argsort(-shares, kind="stable")[: min(count, len(shares) - len(batch.words))]
        tokens = [int(token) for token in likely]
        if whole:  # which spares a second pass
            return tokens, logprobs[:, [*batch.words, *tokens]]
        return tokens, self.logprobs(prompt[None], batch.with_words(tokens))[0]

    def gradient(self, prompt: Floats, batch: Batch, slopes: Floats) -> Floats:
        """Return the gradient at one prompt `(length, width)`, which has the same shape.

        It is that of the sum of `slopes`, `(examples, words)`, times `logprobs`. Only prompt tuning
        asks for it.
        """
        raise NotImplementedError("a model that can only be queried has no gradients")

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> int | None:
        """Measure how to evaluate `candidates` prompts at a time fastest.

        Return how many tokens a forward pass should have, or None where there is no such choice.
        """
        return None

    def set_batch_tokens(self, tokens: int | None) -> None:  # noqa: B027
        """Set how many tokens a forward pass has; None is the model's own default."""

    def for_search(
        self, precision: str | None, prompt_length: int, batch: Batch
    ) -> "LanguageModel":
        """Return the model that answers while a search runs: this one, or a faster one like it.

        `precision` is the one that a run began with, or that was asked for; None leaves the choice
        to the model, which may try it on a prompt of this length and on these examples. What
        cannot be had is a `SettingError`.
        """
        if precision not in (None, self.precision):
            raise SettingError(
                "search_dtype", f"{self.name} answers in {self.precision} only, not in {precision}"
            )
        return self

    def close(self) -> None:  # noqa: B027
        """Give back what the model holds, such as worker processes."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "LanguageModel":
        return self  # a model is large and never changes: scikit-learn's clones share it
