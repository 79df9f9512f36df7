"""Paired comparisons between the rows of a study."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

TEST = "Wilcoxon signed-rank test (two-sided)"
FEWEST_PAIRS = 6  # with fewer pairs that differ, a signed-rank test cannot reach p < 0.05


@dataclass(frozen=True)
class Comparison:
    """One row against another, over the models, tasks and seeds that both have."""

    row: str
    against: str
    pairs: int
    better: int  # pairs in which the row has the higher metric
    median: float  # median difference, in points of the tasks' metrics
    p: float | None  # None where too few pairs differ


def compare(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Compare every pair of rows that share at least one model, task and seed."""
    from scipy.stats import wilcoxon

    finished = frame[frame["finished"].astype(bool)]
    metrics = (100 * finished["test"].astype(float)).groupby(
        [finished[name] for name in ("model", "task", "seed", "row")]
    )
    by_row = metrics.last().unstack("row")  # (model, task, seed) × row
    order = [row for row in frame["row"].unique() if row in by_row.columns]
    for left, right in combinations(order, 2):
        differences = (by_row[left] - by_row[right]).dropna().to_numpy()
        if not len(differences):
            continue
        enough = np.count_nonzero(differences) >= FEWEST_PAIRS
        p = float(wilcoxon(differences).pvalue) if enough else None
        better = int((differences > 0).sum())
        yield Comparison(left, right, len(differences), better, float(np.median(differences)), p)
