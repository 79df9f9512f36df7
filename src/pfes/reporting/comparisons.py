"""Paired comparisons between the rows of a study."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd

TEST = "Wilcoxon signed-rank test (two-sided)"
FEWEST_PAIRS = 6  # with fewer pairs that differ, a signed-rank test cannot reach p < 0.05
LEVEL = 0.05
PLACE = ("model", "task", "seed")


@dataclass(frozen=True)
class Comparison:
    """One row against another, over the models, tasks and seeds that both have.

    `corrected` is p after Holm's correction for the number of comparisons. `sentences_better` and
    `sentences_worse` count the pairs of runs that differ by McNemar's exact test on their test
    sentences, at 5 % after Holm's correction for the number of pairs; None where answers are not
    known.
    """

    row: str
    against: str
    pairs: int
    better: int  # pairs in which the row has the higher metric
    median: float  # median difference, in points of the tasks' metrics
    p: float | None  # None where too few pairs differ
    corrected: float | None = None
    sentences_better: int | None = None
    sentences_worse: int | None = None


def compare(frame: pd.DataFrame, chosen: Sequence[tuple[str, str]] = ()) -> Iterator[Comparison]:
    """Compare the chosen pairs of rows, or every pair that shares a model, task and seed."""
    finished = frame[frame["finished"].astype(bool)]
    by_row = _by_row(100 * finished["test"].astype(float), finished)
    answers = _by_row(finished["right"], finished)
    order = [row for row in frame["row"].unique() if row in by_row.columns]
    pairs = [pair for pair in chosen if {*pair} <= {*order}] if chosen else combinations(order, 2)
    compared = []
    for left, right in pairs:
        differences = (by_row[left] - by_row[right]).dropna().to_numpy()
        if len(differences):
            own = answers[[left, right]].dropna().to_numpy().tolist()
            compared.append(_compare(left, right, differences, own))
    corrected = iter(holm([one.p for one in compared if one.p is not None]))
    for one in compared:
        yield one if one.p is None else replace(one, corrected=next(corrected))


def _by_row(values: pd.Series, finished: pd.DataFrame) -> pd.DataFrame:
    """Return values by (model, task, seed) × row."""
    return values.groupby([finished[name] for name in (*PLACE, "row")]).last().unstack("row")


def _compare(
    left: str, right: str, differences: np.ndarray, answers: list[tuple[str, str]]
) -> Comparison:
    from scipy.stats import wilcoxon

    enough = np.count_nonzero(differences) >= FEWEST_PAIRS
    p = float(wilcoxon(differences).pvalue) if enough else None
    better = int((differences > 0).sum())
    compared = Comparison(left, right, len(differences), better, float(np.median(differences)), p)
    known = [(a, b) for a, b in answers if a and len(a) == len(b)]
    if not known:
        return compared
    counts = [only_right(a, b) for a, b in known]
    significant = [p < LEVEL for p in holm([mcnemar(*count) for count in counts])]
    signs = [np.sign(a - b) for (a, b), differs in zip(counts, significant, strict=True) if differs]
    return replace(compared, sentences_better=signs.count(1), sentences_worse=signs.count(-1))


def only_right(answers: str, others: str) -> tuple[int, int]:
    """Return how many test examples only the one has right, and only the other.

    Both have a 1 for each example that is answered right.
    """
    pairs = list(zip(answers, others, strict=True))
    return pairs.count(("1", "0")), pairs.count(("0", "1"))


def mcnemar(ours: int, theirs: int) -> float:
    """Return the p value of McNemar's exact test: examples that only one of two has right."""
    from scipy.stats import binomtest

    return float(binomtest(ours, ours + theirs).pvalue) if ours + theirs else 1.0


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number, by Holm's step-down method."""
    order = np.argsort(values, kind="stable")
    corrected = np.empty(len(values))
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = largest
    return corrected.tolist()
