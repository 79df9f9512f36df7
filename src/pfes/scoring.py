"""How good a prompt is on labelled examples: metric, confidence, intervals."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfes.models.base import Floats, Ints, LanguageModel
from pfes.objective import loss
from pfes.seeds import stream
from pfes.tasks.batch import Batch
from pfes.tasks.spec import TaskSpec

SLICE = 64  # examples between two signs of progress
RESAMPLES = 1000


def metric_value(spec: TaskSpec, labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
    """Return the task's metric, from scikit-learn."""
    from sklearn import metrics

    if spec.metric == "f1":
        positive = (
            len(spec.labels) - 1 if spec.positive is None else spec.labels.index(spec.positive)
        )
        return float(metrics.f1_score(labels, predicted, pos_label=positive, zero_division=0.0))
    if spec.metric == "matthews":
        return float(metrics.matthews_corrcoef(labels, predicted))
    return float(metrics.accuracy_score(labels, predicted))


@dataclass(frozen=True)
class Score:
    """A prompt's answers on a batch."""

    spec: TaskSpec
    labels: NDArray[np.int64]
    logprobs: Floats  # (examples, words)
    word_ranks: Ints | None  # (examples, words)

    @property
    def predicted(self) -> NDArray[np.int64]:
        return np.asarray(self.logprobs.argmax(axis=1), dtype=np.int64)

    @property
    def metric(self) -> float:
        return metric_value(self.spec, self.labels, self.predicted)

    @property
    def probability(self) -> float:
        """P: mean probability, over the full vocabulary, of the predicted word."""
        return float(np.exp(self.logprobs.max(axis=1).astype(np.float64)).mean())

    @property
    def rank(self) -> float | None:
        """R: mean rank of the predicted word in the full vocabulary (1 = top)."""
        if self.word_ranks is None:
            return None
        return float(self.word_ranks[np.arange(len(self.labels)), self.predicted].mean())

    def loss(self, beta: float) -> float:
        """Return the mean CE + β·CR."""
        return float(loss(self.logprobs[None], self.labels, beta)[0])


def score(
    model: LanguageModel, spec: TaskSpec, prompt: Floats, batch: Batch, ranks: bool = False
) -> Score:
    """Score a prompt `(length, width)` on a batch."""
    *_, result = score_steps(model, spec, prompt, batch, ranks)
    assert isinstance(result, Score)
    return result


def score_steps(
    model: LanguageModel, spec: TaskSpec, prompt: Floats, batch: Batch, ranks: bool = False
) -> Iterator[int | Score]:
    """Score a prompt; yield how many examples are done, and the score at the end."""
    answers: list[Floats] = []
    positions: list[Ints] = []
    for start in range(0, len(batch), SLICE):
        part = _slice(batch, start, start + SLICE)
        if ranks:
            logprobs, where = model.ranks(prompt[None], part)
            if where is not None:
                positions.append(where[0])
        else:
            logprobs = model.logprobs(prompt[None], part)
        answers.append(logprobs[0])
        yield min(start + SLICE, len(batch))
    word_ranks = np.concatenate(positions) if positions else None
    yield Score(spec, batch.labels, np.concatenate(answers), word_ranks)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    return Batch(
        batch.token_ids[start:stop],
        batch.answers[start:stop],
        batch.words,
        batch.labels[start:stop],
    )


Interval = tuple[float, float]


def interval(score: Score, baseline: Score | None = None) -> Interval:
    """Return a 95 % bootstrap interval of the metric, or of its gain over a baseline.

    A gain is resampled in pairs: both prompts are judged on the same sentences each time.
    """
    rng = stream(0, "bootstrap")
    values = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        pick = rng.integers(len(score.labels), size=len(score.labels))
        labels = score.labels[pick]
        values[i] = metric_value(score.spec, labels, score.predicted[pick])
        if baseline is not None:
            values[i] -= metric_value(score.spec, labels, baseline.predicted[pick])
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
