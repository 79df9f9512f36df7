"""How good a prompt is on labelled examples: metric, confidence, intervals."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pfes.contract import Batch, Floats, Ints, LanguageModel
from pfes.searches.log_space import Doubles
from pfes.searches.losses import Loss
from pfes.searches.reading import PLAIN, Reading
from pfes.seeds import stream
from pfes.system.stages import result_of
from pfes.tasks.spec import TaskSpec

SLICE = 64  # examples between two signs of progress
RESAMPLES = 1000
CELLS = 2**23  # numbers in memory at once, of all confusion matrices of some resamples


def metric_value(spec: TaskSpec, labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
    """Return the task's metric, from scikit-learn; NaN where there are no examples."""
    if not len(labels):
        return math.nan
    from sklearn import metrics

    if spec.metric == "f1":
        score = metrics.f1_score(labels, predicted, pos_label=_positive(spec), zero_division=0.0)
        return float(score)
    if spec.metric == "matthews":
        return float(metrics.matthews_corrcoef(labels, predicted))
    return float(metrics.accuracy_score(labels, predicted))


@dataclass(frozen=True)
class Score:
    """A prompt's answers on a batch."""

    spec: TaskSpec
    labels: NDArray[np.int64]
    logprobs: Floats  # (examples, labels + the reading's words)
    word_ranks: Ints | None  # (examples, labels + the reading's words)
    reading: Reading = PLAIN

    def plainly(self, reading: Reading = PLAIN) -> "Score":
        """Return the same answers, of which only the labels' own words are read."""
        ranks = None if self.word_ranks is None else self.word_ranks[:, : len(self.spec.labels)]
        return Score(self.spec, self.labels, self.own_logprobs, ranks, reading)

    @property
    def predicted(self) -> NDArray[np.int64]:
        return np.asarray(self.reading.scores(self.logprobs).argmax(axis=1), dtype=np.int64)

    @property
    def probabilities(self) -> Doubles:
        """The labels' probabilities among themselves, `(examples, labels)`."""
        return np.exp(self.reading.log_probabilities(self.logprobs))

    @property
    def entropies(self) -> Doubles:
        """The cross-entropy of each example, `(examples,)`, as the reading answers."""
        right = self.reading.log_probabilities(self.logprobs)[
            np.arange(len(self.labels)), self.labels
        ]
        return np.where(np.isnan(right), np.inf, -right)

    @property
    def own_logprobs(self) -> Floats:
        """The log-probabilities of the labels' own words, `(examples, labels)`."""
        return self.logprobs[:, : len(self.spec.labels)]

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve, one label against the rest, mean over the labels."""
        from sklearn.metrics import roc_auc_score

        if len(np.unique(self.labels)) < len(self.spec.labels):
            return None
        scores = self.probabilities
        if not np.isfinite(scores).all():
            return None
        ones = [roc_auc_score(self.labels == i, scores[:, i]) for i in range(scores.shape[1])]
        return float(np.mean(ones))

    @property
    def metric(self) -> float:
        return metric_value(self.spec, self.labels, self.predicted)

    @property
    def probability(self) -> float:
        """P: mean probability, over the full vocabulary, of the predicted word."""
        if not len(self.labels):
            return math.nan
        chosen = self.logprobs[np.arange(len(self.labels)), self.predicted]
        return float(np.exp(chosen.astype(np.float64)).mean())

    @property
    def rank(self) -> float | None:
        """R: mean rank of the predicted word in the full vocabulary (1 = top)."""
        if self.word_ranks is None:
            return None
        return float(self.word_ranks[np.arange(len(self.labels)), self.predicted].mean())

    def loss(self, loss: Loss) -> float:
        """Return the mean loss."""
        return float(loss(self.own_logprobs[None], self.labels)[0])


def score(
    model: LanguageModel,
    spec: TaskSpec,
    prompt: Floats,
    batch: Batch,
    ranks: bool = False,
    reading: Reading = PLAIN,
) -> Score:
    """Score a prompt `(length, width)` on a batch, all of it at once."""
    everything = max(1, len(batch))
    return result_of(score_steps(model, spec, [(prompt, reading)], batch, ranks, everything))[0]


def score_steps(
    model: LanguageModel,
    spec: TaskSpec,
    prompts: Sequence[tuple[Floats, Reading]],
    batch: Batch,
    ranks: bool = False,
    at_once: int = SLICE,
) -> Generator[int, None, list[Score]]:
    """Score prompts; yield how many examples are done, and return a score for each prompt.

    All of them answer for so many examples before the next ones. What a model has kept for a batch
    is there again the next time only where that is scored at once.
    """
    words = [len(batch.words) + len(reading.words) for _, reading in prompts]
    answers: list[list[Floats]] = [[np.empty((0, count), dtype=np.float32)] for count in words]
    positions: list[list[Ints]] = [[] for _ in prompts]
    done = 0
    for part in [batch] if 0 < len(batch) <= at_once else batch.in_parts(at_once):
        for number, (prompt, reading) in enumerate(prompts):
            asked = part.with_words(reading.words)
            if ranks:
                logprobs, ranked = model.ranks(prompt[None], asked)
                if ranked is not None:
                    positions[number].append(ranked[0])
            else:
                logprobs = model.logprobs(prompt[None], asked)
            answers[number].append(logprobs[0])
        done += len(part)
        yield done
    return [
        Score(
            spec,
            batch.labels,
            np.concatenate(answers[number]),
            np.concatenate(positions[number]) if positions[number] else None,
            reading,
        )
        for number, (_, reading) in enumerate(prompts)
    ]


Interval = tuple[float, float]


def interval(score: Score, baseline: Score | None = None) -> Interval:
    """Return a 95 % bootstrap interval of the metric, or of its gain over a baseline.

    A gain is resampled in pairs: both prompts are judged on the same sentences each time.
    """
    if not len(score.labels):
        return math.nan, math.nan
    count = len(score.spec.labels)
    other = score.labels if baseline is None else baseline.predicted
    # a metric depends only on this triple, so resampling examples is resampling triples
    triples = (score.labels * count + score.predicted) * count + other
    kinds = np.union1d(triples, [count**3 - 1])  # multinomial gives the last one what is left
    shares = np.bincount(np.searchsorted(kinds, triples), minlength=len(kinds)) / len(triples)
    labels, ours, theirs = np.unravel_index(kinds, (count, count, count))
    rng = stream(0, "bootstrap")
    values = []
    size = max(1, CELLS // (count**2 + len(kinds)))  # resamples at a time: memory is bounded
    for start in range(0, RESAMPLES, size):
        drawn = rng.multinomial(len(triples), shares, size=min(size, RESAMPLES - start))
        part = metric_of_counts(score.spec, _matrices(drawn, labels, ours, count))
        if baseline is not None:
            part -= metric_of_counts(score.spec, _matrices(drawn, labels, theirs, count))
        values.append(part)
    low, high = np.percentile(np.concatenate(values), [2.5, 97.5])
    return float(low), float(high)


def _matrices(
    drawn: NDArray[np.int64], labels: Ints, predicted: Ints, count: int
) -> NDArray[np.int64]:
    """Return a confusion matrix for each row of `drawn`, which counts kinds of examples."""
    cells, indices = np.unique(labels * count + predicted, return_inverse=True)
    order = np.argsort(indices, kind="stable")
    firsts = np.searchsorted(indices[order], np.arange(len(cells)))
    matrices = np.zeros((len(drawn), count * count), dtype=np.int64)
    matrices[:, cells] = np.add.reduceat(drawn[:, order], firsts, axis=1)
    return matrices.reshape(-1, count, count)


def metric_of_counts(spec: TaskSpec, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the metric of many confusion matrices at once, `(matrices, labels, predicted)`."""
    total = counts.sum(axis=(1, 2)).astype(np.float64)
    right = np.trace(counts, axis1=1, axis2=2).astype(np.float64)
    actual, given = counts.sum(axis=2).astype(np.float64), counts.sum(axis=1).astype(np.float64)
    if spec.metric == "accuracy":
        top, bottom = right, total
    elif spec.metric == "f1":
        positive = _positive(spec)
        top = 2.0 * counts[:, positive, positive]
        bottom = actual[:, positive] + given[:, positive]
    else:
        top = right * total - (actual * given).sum(axis=1)
        spread = [total**2 - (margin**2).sum(axis=1) for margin in (actual, given)]
        bottom = np.sqrt(spread[0] * spread[1])
    return np.asarray(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0))


def _positive(spec: TaskSpec) -> int:
    return spec.labels.index(spec.positive or spec.labels[-1])
