"""Paired comparisons between the rows of a study."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pfes.result import Result
from pfes.studies.plan import PlannedRun

TEST = "Wilcoxon signed-rank test (two-sided)"
FEWEST = 6  # pairs that differ, below which a signed-rank test cannot reach 0.05


@dataclass(frozen=True)
class Comparison:
    """One row against another, on the models, tasks and seeds that both have."""

    row: str
    against: str
    pairs: int
    better: int  # pairs in which the row has the higher metric
    median: float  # difference in points of the tasks' metrics
    p: float | None  # None where too few pairs differ


def compare(plan: list[PlannedRun], results: dict[int, Result]) -> Iterator[Comparison]:
    """Yield every pair of rows that share at least one model, task and seed."""
    from scipy.stats import wilcoxon

    by_row: dict[str, dict[Any, float]] = {}
    for i, result in results.items():
        cell = (plan[i].config.model, plan[i].config.task, plan[i].config.seed)
        by_row.setdefault(plan[i].label, {})[cell] = 100 * result.test
    order = [label for label in dict.fromkeys(run.label for run in plan) if label in by_row]
    for left, right in combinations(order, 2):
        cells = sorted(by_row[left].keys() & by_row[right].keys())
        if not cells:
            continue
        gaps = np.array([by_row[left][cell] - by_row[right][cell] for cell in cells])
        enough = np.count_nonzero(gaps) >= FEWEST
        p = float(wilcoxon(gaps).pvalue) if enough else None
        better = int((gaps > 0).sum())
        yield Comparison(left, right, len(gaps), better, float(np.median(gaps)), p)
