"""The examples that one generation is evaluated on: all of them, or a batch drawn for it."""

import numpy as np

from pfes.config import DEFAULT_SHOTS
from pfes.contract import Batch, Ints
from pfes.searches.log_space import Doubles
from pfes.seeds import stream

LEAST = 64  # examples of a batch, however few labels there are
FEW = 2  # up to so many batches, all examples are used: a batch would save too little


def usual_batch(train: int, labels: int) -> int | None:
    """Return how many of the training examples a batch has by default, or None for all.

    A batch has as many as the paper's few shots.
    """
    size = max(LEAST, DEFAULT_SHOTS * labels)
    return size if train > FEW * size else None


def draw_batch(train: Batch, size: int | None, seed: int, spent: int) -> Batch:
    """Return the batch of the generation that begins after `spent` evaluations.

    It depends on nothing else, so a resumed run draws the same one. All examples, if `size` is
    None or there are no more, are `train` itself: then a model keeps what it prepared for them.
    """
    if size is None or size >= len(train):
        return train
    return train.take(draw_examples(train.labels, size, stream(seed, f"batch {spent}")))


def draw_examples(labels: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Draw examples, each label in proportion to its share, and return their indices in order.

    Each label has one at least, where `size` allows.
    """
    kinds, counts = np.unique(labels, return_counts=True)
    shares = _shares(counts, size)
    drawn = np.floor(shares).astype(np.int64)
    left = size - int(drawn.sum())
    if left:  # parts of an example go to labels at random, so none is always left out
        parts = shares - drawn
        drawn[rng.choice(len(kinds), left, replace=False, p=parts / parts.sum())] += 1
    chosen = [
        rng.choice(np.flatnonzero(labels == kind), count, replace=False)
        for kind, count in zip(kinds, drawn, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def _shares(counts: Ints, size: int) -> Doubles:
    """Divide `size` among labels in proportion to their counts; one each, where that is enough."""
    shares = np.asarray(size * counts / counts.sum())
    while size >= len(counts) and (shares < 1).any():
        rare = shares <= 1
        shares[rare] = 1
        shares[~rare] = (size - rare.sum()) * counts[~rare] / counts[~rare].sum()
    return shares
