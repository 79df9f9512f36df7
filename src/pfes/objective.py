"""From prompt vectors to losses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.errors import PfesError
from pfes.methods import LENGTH
from pfes.models.base import Floats, LanguageModel
from pfes.seeds import stream
from pfes.tasks.batch import Batch, Placement, encode
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Example, Task

Doubles: TypeAlias = NDArray[np.float64]

TEXT = "text:"  # prefix of an initial prompt given as text


def cross_entropy(logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
    """Return CE per candidate and example, normalised over the verbalizer words alone.

    `logprobs` is `(candidates, examples, words)`, over the full vocabulary.
    """
    wide = logprobs.astype(np.float64)
    right = wide[:, np.arange(len(labels)), labels]  # (candidates, examples)
    return _log_sum_exp(wide) - right


def confidence_loss(logprobs: NDArray[np.floating]) -> Doubles:
    """Return CR per candidate and example: −log of the probability that the words have together."""
    return -_log_sum_exp(logprobs.astype(np.float64))


def reward(logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
    """Return RLPrompt's reward per candidate and example.

    The gap between the probability of the right word and that of the best wrong one, among the
    verbalizer words, times 200 where it is positive and times 180 where not.
    """
    wide = logprobs.astype(np.float64)
    shares = np.exp(wide - _log_sum_exp(wide)[..., None])
    index = np.arange(len(labels))
    right = shares[:, index, labels]  # (candidates, examples)
    shares[:, index, labels] = -np.inf
    gap = right - shares.max(axis=-1)
    return np.asarray(np.where(gap > 0, 200.0, 180.0) * gap)


@dataclass(frozen=True)
class Loss:
    """What a search minimises, of log-probabilities: CE + β·CR, or RLPrompt's negative reward."""

    beta: float = 0.0
    rewarded: bool = False

    def __call__(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return one value per candidate, the mean over its examples."""
        return self.by_example(logprobs, labels).mean(axis=1)  # type: ignore[no-any-return]

    def by_example(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return one value per candidate and example."""
        if self.rewarded:
            return -reward(logprobs, labels)
        value = cross_entropy(logprobs, labels)
        return value + self.beta * confidence_loss(logprobs) if self.beta else value


@dataclass(frozen=True)
class Evaluation:
    """Values of candidates; those named in `partial` are lower bounds that decide nothing."""

    values: Doubles
    partial: tuple[int, ...] = ()


def _log_sum_exp(values: Doubles) -> Doubles:
    top = values.max(axis=-1)
    with np.errstate(invalid="ignore"):  # all −inf gives NaN, which an optimizer counts as worst
        return top + np.log(np.exp(values - top[..., None]).sum(axis=-1))  # type: ignore[no-any-return]


class Objective:
    """The function that a search minimises: mean loss over the few training examples.

    Call it on a `(candidates, d)` array; it returns one value per candidate. Each value is one
    function evaluation.
    """

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        prompt_length: int | None = None,
        beta: float = 0.0,
        placement: Placement = "prefix",
    ) -> None:
        self.model = model
        self.prompt_length = prompt_length or int(LENGTH.of(model.family))
        self.loss = Loss(beta)
        self.batch = encode_for(model, task.spec, task.train, self.prompt_length, placement)

    @property
    def dimension(self) -> int:
        """d = l·e."""
        return self.prompt_length * self.model.width

    def __call__(self, candidates: Floats) -> Doubles:
        return self.values(self.prompts(candidates))

    def values(self, prompts: Sequence[Floats] | Floats, loss: Loss | None = None) -> Doubles:
        """Return the values of prompts, each `(length, width)`; in a list, lengths may differ."""
        if isinstance(prompts, np.ndarray):
            logprobs = self.model.logprobs(prompts, self.batch)
            return (loss or self.loss)(logprobs, self.batch.labels)
        found = np.empty(len(prompts))
        lengths = np.array([len(prompt) for prompt in prompts])
        for length in np.unique(lengths):
            alike = np.flatnonzero(lengths == length).tolist()
            found[alike] = self.values(np.stack([prompts[i] for i in alike]), loss)
        return found

    def prompts(self, vectors: Floats) -> Floats:
        """Return vectors `(n, d)` as prompts `(n, length, width)`."""
        array = np.asarray(vectors, dtype=np.float32)
        if array.ndim != 2 or array.shape[1] != self.dimension:
            raise ValueError(f"expected an array (candidates, {self.dimension}), got {array.shape}")
        return array.reshape(len(array), self.prompt_length, self.model.width)

    def initial_prompt(self, seed: int = 0, init: str = "vocab") -> Floats:
        """Return x0, `(d,)`: random tokens (`vocab`), `zeros`, or the tokens of `text:…`."""
        return initial_prompt(self.model, self.prompt_length, seed, init).reshape(-1)


def initial_prompt(model: LanguageModel, length: int, seed: int, init: str) -> Floats:
    """Return an initial prompt, `(length, width)`; a text is repeated or cut to the length."""
    if init == "zeros":
        return np.zeros((length, model.width), dtype=np.float32)
    if init == "vocab":
        tokens = stream(seed, "initial-prompt").integers(model.vocabulary, size=length)
        return model.embed(tokens.tolist())
    return model.embed(np.resize(text_tokens(model, init), length).tolist())


def text_tokens(model: LanguageModel, init: str) -> list[int]:
    """Return the tokens of an initial prompt given as `text:…`."""
    if not init.startswith(TEXT):
        raise PfesError(f"init {init!r}: choose vocab, zeros or text:…")
    tokens = model.tokenizer(init.removeprefix(TEXT), add_special_tokens=False)["input_ids"]
    if not tokens:
        raise PfesError("init: the text after text: is empty")
    return list(tokens)


def encode_for(
    model: LanguageModel,
    spec: TaskSpec,
    examples: Sequence[Example],
    prompt_length: int,
    placement: Placement = "prefix",
) -> Batch:
    """Encode examples with the room that a prompt leaves."""
    room = text_room(model, prompt_length)
    return encode(spec, examples, model.tokenizer, model.family, room, placement)


def text_room(model: LanguageModel, prompt_length: int) -> int:
    """Return how many tokens a prompt leaves for the text."""
    room = model.max_length - prompt_length
    if room < 1:
        raise PfesError(
            f"a prompt of {prompt_length} tokens leaves no room for text: "
            f"{model.name} takes {model.max_length} in all"
        )
    return room
