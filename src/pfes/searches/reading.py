"""The reading: from the log-probabilities of words to the probabilities of labels.

    scores = s·L − b + F·W

L are the log-probabilities of the labels' own words, b is an offset per label, s > 0 a slope, and F
the log-probabilities of all answer words (the labels' own and further ones) with weights W. A plain
reading has s = 1 and neither b nor W: the label with the most probable word wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pfes.searches.log_space import Doubles, bounded, log_softmax

TELLING = 10  # words that are shown for each label

Rung = Literal["plain", "offset", "slope", "words", "mixed"]


@dataclass(frozen=True)
class HeldOut:
    """How readings like this one read each example that they were not fitted to."""

    own: NDArray[np.floating[Any]]  # (examples, labels) log-probabilities of the labels' own words
    scores: Doubles  # (repeats, examples, labels)

    def of(self, examples: slice) -> "HeldOut":
        """Return some of the examples."""
        return HeldOut(self.own[examples], self.scores[:, examples])

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The labels of the examples, by their mean scores."""
        return np.asarray(self.scores.mean(axis=0).argmax(axis=1), dtype=np.int64)

    def entropies(self, labels: NDArray[np.integer[Any]]) -> Doubles:
        """Return the cross-entropy of each example, `(examples,)`."""
        right = log_softmax(self.scores)[:, np.arange(len(labels)), labels].mean(axis=0)
        return np.where(np.isnan(right), np.inf, -right)


@dataclass(frozen=True)
class Reading:
    """How answers are read: slope, offsets, and weights of answer words."""

    rung: Rung = "plain"
    slope: float = 1.0
    offsets: Doubles | None = None  # (labels,)
    words: tuple[int, ...] = ()  # tokens of the further answer words
    centers: Doubles | None = None  # (labels + words,) what F is measured from
    weights: Doubles | None = None  # (labels + words, labels)
    spreads: Doubles | None = None  # (labels + words,) deviation over the examples; not stored
    trials: dict[str, float] = field(default_factory=dict)  # cross-validated loss of each rung
    shares: dict[str, float] = field(default_factory=dict)  # weight of each rung in this reading
    loss: float | None = None  # the cross-validated loss of this one
    plain_loss: float | None = None  # and that of the plain reading
    offset_alone: "Reading | None" = None  # offsets and nothing else, fitted to the same answers
    held_out: HeldOut | None = field(default=None, repr=False, compare=False)  # not stored

    def scores(self, logprobs: NDArray[np.floating[Any]]) -> Doubles:
        """Return scores `(…, labels)` of log-probabilities `(…, labels + words)`.

        The labels' own words come first, then the further answer words of this reading.
        """
        labels = logprobs.shape[-1] - len(self.words)
        if self.rung == "plain":
            return logprobs[..., :labels].astype(np.float64)
        assert self.offsets is not None
        answers = bounded(logprobs)
        scores = self.slope * answers[..., :labels] - self.offsets
        if self.weights is not None:
            assert self.centers is not None
            scores = scores + (answers - self.centers) @ self.weights
        return np.asarray(scores)

    def log_probabilities(self, logprobs: NDArray[np.floating[Any]]) -> Doubles:
        """Return the log-probabilities of the labels, `(…, labels)`."""
        return log_softmax(self.scores(logprobs))

    def shifted(self, amount: Doubles) -> "Reading":
        """Return a reading with these amounts added to the scores of the labels."""
        if not amount.any():
            return self
        rung: Rung = "offset" if self.rung == "plain" else self.rung
        offsets = np.zeros(len(amount)) if self.offsets is None else self.offsets
        alone = None if self.offset_alone is None else self.offset_alone.shifted(amount)
        return replace(self, rung=rung, offsets=offsets - amount, offset_alone=alone)

    def to_arrays(self, labels: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return arrays that any program can apply; `labels` are the tokens of the labels' words.

        With a the log-probabilities of `words`, none more than `LOWEST` below the best, of which
        the first k are the labels' own: scores = slope·a[:k] − offsets + (a − centers) @ weights.
        """
        tokens = (*labels, *self.words)
        count, size = len(labels), len(tokens)
        return {
            "words": np.array(tokens, dtype=np.int64),
            "slope": np.array([self.slope]),
            "offsets": np.zeros(count) if self.offsets is None else self.offsets,
            "centers": np.zeros(size) if self.centers is None else self.centers,
            "weights": np.zeros((size, count)) if self.weights is None else self.weights,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], rung: Rung) -> "Reading":
        """Read what `to_arrays` returned; arrays that do not fit together are a `ValueError`."""
        try:
            offsets, tokens = arrays["offsets"], arrays["words"].tolist()
            slope = float(arrays["slope"][0])
            further = tuple(int(token) for token in tokens[len(offsets) :])
            weighted = len(further) > 0 or bool(arrays["weights"].any())
            parts = (arrays["centers"], arrays["weights"]) if weighted else (None, None)
            reading = cls(rung, slope, offsets, further, *parts)
            reading.scores(np.zeros([1, len(tokens)]))
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a reading: {error}") from None
        return reading

    def summary(self, tokenizer: Any, labels: Sequence[str]) -> dict[str, Any]:
        """Return what a person wants to know: rung, slope, offsets, the most telling words."""
        telling = {}
        if self.weights is not None and self.words:
            assert self.spreads is not None
            further = (self.weights * self.spreads[:, None])[len(labels) :]
            gaps = further - further.mean(axis=1, keepdims=True)
            for i, label in enumerate(labels):
                best = np.argsort(-gaps[:, i], kind="stable")[:TELLING]
                telling[label] = [tokenizer.decode([self.words[j]]) for j in best]
        offsets = (
            {}
            if self.offsets is None
            else dict(zip(labels, (self.offsets - self.offsets.mean()).tolist(), strict=True))
        )
        return {
            "rung": self.rung,
            "slope": self.slope,
            "offsets": offsets,
            "cross_validation": self.trials,
            "shares": self.shares,
            "loss": self.loss,
            "plain_loss": self.plain_loss,
            "telling": telling,
        }


PLAIN = Reading()
READING = "reading_"  # how the names of a reading's arrays begin beside a prompt
