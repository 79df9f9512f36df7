"""The function that a search minimises: from prompt vectors to losses."""

from collections.abc import Sequence

import numpy as np

from pfes.contract import Batch, Floats, LanguageModel, Placement
from pfes.methods import LENGTH
from pfes.searches.encoded import EncodedTask
from pfes.searches.initial_prompt import initial_prompt
from pfes.searches.log_space import Doubles
from pfes.searches.losses import Loss
from pfes.tasks.task import Task


def prompt_values(
    model: LanguageModel, batch: Batch, prompts: Sequence[Floats] | Floats, loss: Loss
) -> tuple[Doubles, Doubles]:
    """Return the mean loss of prompts, each `(length, width)`, and their mean cross-entropy.

    In a list, lengths may differ.
    """
    if isinstance(prompts, np.ndarray):
        return loss.with_cross_entropy(model.logprobs(prompts, batch), batch.labels)
    values, entropies = np.empty(len(prompts)), np.empty(len(prompts))
    lengths = np.array([len(prompt) for prompt in prompts])
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length).tolist()
        same_length = np.stack([prompts[i] for i in alike])
        values[alike], entropies[alike] = prompt_values(model, batch, same_length, loss)
    return values, entropies


def value_and_gradient(
    model: LanguageModel, batch: Batch, prompt: Floats, loss: Loss
) -> tuple[tuple[Doubles, Doubles], Floats]:
    """Return the mean loss and cross-entropy of one prompt, and the gradient of its loss.

    The prompt and the gradient are `(length, width)`, the others `(1,)`.
    """
    logprobs = model.logprobs(prompt[None], batch)
    slopes = loss.slopes(logprobs[0], batch.labels)
    gradient = model.gradient(prompt, batch, slopes.astype(np.float32))
    return loss.with_cross_entropy(logprobs, batch.labels), gradient


class Objective:
    """The mean loss over the few training examples, as a function of prompt vectors.

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
        self.batch = EncodedTask(model, task, self.prompt_length, placement).train

    @property
    def dimension(self) -> int:
        """d = l·e."""
        return self.prompt_length * self.model.width

    def __call__(self, candidates: Floats) -> Doubles:
        return prompt_values(self.model, self.batch, self.prompts(candidates), self.loss)[0]

    def prompts(self, vectors: Floats) -> Floats:
        """Return vectors `(n, d)` as prompts `(n, length, width)`."""
        array = np.asarray(vectors, dtype=np.float32)
        if array.ndim != 2 or array.shape[1] != self.dimension:
            raise ValueError(f"expected an array (candidates, {self.dimension}), got {array.shape}")
        return array.reshape(len(array), self.prompt_length, self.model.width)

    def initial_prompt(self, seed: int = 0, init: str = "vocab") -> Floats:
        """Return x0, `(d,)`: random tokens (`vocab`), `zeros`, or the tokens of `text:…`."""
        return initial_prompt(self.model, self.prompt_length, seed, init).reshape(-1)
