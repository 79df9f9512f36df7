"""Losses of log-probabilities: cross-entropy, confidence, RLPrompt's reward."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pfes.searches.log_space import Doubles, bounded, log_softmax, log_sum_exp
from pfes.searches.quick_readings import best_offsets, best_slopes, sloped_scores


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


After = Literal["nothing", "offset", "slope"]


@dataclass(frozen=True)
class Loss:
    """What a search minimises, of log-probabilities: CE + β·CR, or RLPrompt's negative reward.

    Answers are judged `after` each candidate's own best offsets, and slope, if a reading has those.
    """

    beta: float = 0.0
    rewarded: bool = False
    after: After = "nothing"

    def __call__(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return one value per candidate, the mean over its examples."""
        return self.with_cross_entropy(logprobs, labels)[0]

    def with_cross_entropy(
        self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]
    ) -> tuple[Doubles, Doubles]:
        """Return one value per candidate, and the cross-entropy that methods can be compared by."""
        answers = self._adjusted(logprobs, labels)
        entropies = values = cross_entropy(answers, labels)
        if self.rewarded:
            values = -reward(answers, labels)
        elif self.beta:
            values = values + self.beta * confidence_loss(logprobs)
        return values.mean(axis=1), entropies.mean(axis=1)

    def slopes(self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]) -> Doubles:
        """Return the gradient of one candidate's loss with respect to its log-probabilities.

        Both are `(examples, words)`. Offsets and slope are held where they are best: there the loss
        hardly changes with them, by no more than what their ridges keep from it.
        """
        assert not self.rewarded, "a reward has jumps"
        answers = logprobs[None]
        factor = best_slopes(answers, labels)[0] if self.after == "slope" else 1.0
        slopes = np.exp(log_softmax(bounded(self._adjusted(answers, labels))[0]))
        slopes[np.arange(len(labels)), labels] -= 1
        slopes *= factor
        if self.beta:
            slopes -= self.beta * np.exp(log_softmax(bounded(logprobs)))
        return slopes / len(labels)

    def _adjusted(
        self, logprobs: NDArray[np.floating], labels: NDArray[np.int64]
    ) -> NDArray[np.floating]:
        if self.after == "offset":
            return bounded(logprobs) - best_offsets(logprobs, labels)[:, None]
        return logprobs if self.after == "nothing" else sloped_scores(logprobs, labels)
