"""Losses of log-probabilities: cross-entropy, confidence, RLPrompt's reward."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfes.searches.fit_reading import best_offsets
from pfes.searches.log_space import Doubles, bounded, log_softmax, log_sum_exp


def cross_entropy(logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
    """Return CE per candidate and example, normalised over the verbalizer words alone.

    `logprobs` is `(candidates, examples, words)`, over the full vocabulary.
    """
    wide = logprobs.astype(np.float64)
    right = wide[:, np.arange(len(labels)), labels]  # (candidates, examples)
    return log_sum_exp(wide) - right


def confidence_loss(logprobs: NDArray[np.floating]) -> Doubles:
    """Return CR per candidate and example: −log of the probability that the words have together."""
    return -log_sum_exp(logprobs.astype(np.float64))


def reward(logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
    """Return RLPrompt's reward per candidate and example.

    The gap between the probability of the right word and that of the best wrong one, among the
    verbalizer words, times 200 where it is positive and times 180 where not.
    """
    wide = logprobs.astype(np.float64)
    shares = np.exp(wide - log_sum_exp(wide)[..., None])
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
    offset: bool = False  # judge answers after each candidate's own best offsets

    def __call__(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return one value per candidate, the mean over its examples."""
        answers = logprobs
        if self.offset:
            answers = bounded(logprobs) - best_offsets(logprobs, labels)[:, None]
        if self.rewarded:
            values = -reward(answers, labels)
        else:
            values = cross_entropy(answers, labels)
            if self.beta:
                values = values + self.beta * confidence_loss(logprobs)
        return values.mean(axis=1)  # type: ignore[no-any-return]

    def slopes(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return the gradient of one candidate's loss with respect to its log-probabilities.

        Both are `(examples, words)`. Offsets are held where they are best: there the loss does not
        change with them, but for the thousandth part that their ridge is.
        """
        assert not self.rewarded, "a reward has jumps"
        answers = bounded(logprobs)
        if self.offset:
            answers = answers - best_offsets(logprobs[None], labels)
        slopes = np.exp(log_softmax(answers))
        slopes[np.arange(len(labels)), labels] -= 1
        if self.beta:
            slopes -= self.beta * np.exp(log_softmax(bounded(logprobs)))
        return slopes / len(labels)
