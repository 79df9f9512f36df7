"""From prompt vectors to losses."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pfes.errors import PfesError
from pfes.models.base import Floats, LanguageModel
from pfes.seeds import stream
from pfes.tasks.batch import encode
from pfes.tasks.spec import Family
from pfes.tasks.task import Task

Doubles: TypeAlias = NDArray[np.float64]

# The paper's: RoBERTa-Large and OPT-6.7B
DEFAULT_PROMPT_LENGTH: dict[Family, int] = {"masked": 50, "causal": 10}
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


def loss(logprobs: NDArray[np.floating], labels: NDArray[np.int64], beta: float) -> Doubles:
    """Return CE + β·CR per candidate, the mean over its examples."""
    value = cross_entropy(logprobs, labels)
    if beta:
        value = value + beta * confidence_loss(logprobs)
    return value.mean(axis=1)  # type: ignore[no-any-return]


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
    ) -> None:
        self.model = model
        self.prompt_length = prompt_length or DEFAULT_PROMPT_LENGTH[model.family]
        self.beta = beta
        room = text_room(model, self.prompt_length)
        self.batch = encode(task.spec, task.train, model.tokenizer, model.family, room)

    @property
    def dimension(self) -> int:
        """d = l·e."""
        return self.prompt_length * self.model.width

    def __call__(self, candidates: Floats) -> Doubles:
        prompts = self.prompts(candidates)
        return loss(self.model.logprobs(prompts, self.batch), self.batch.labels, self.beta)

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


def text_room(model: LanguageModel, prompt_length: int) -> int:
    """Return how many tokens a prompt leaves for the text."""
    room = model.max_length - prompt_length
    if room < 1:
        raise PfesError(
            f"a prompt of {prompt_length} tokens leaves no room for text: "
            f"{model.name} takes {model.max_length} in all"
        )
    return room
