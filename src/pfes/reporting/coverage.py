"""The headline of a study with a ceiling: how much of the way from the template each row covers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pfes.reporting.sheets import MISSING, Entry, Sheet
from pfes.seeds import stream

RESAMPLES = 2000
LEAST_PLACES = 5  # of which an interval can be drawn
PLACE = ["model", "task", "seed"]
EVERYTHING = "all models"
MEANING = (
    "What each row gains over the template, and which share that is of what the ceiling gains: the "
    "sum of the one over the sum of the other, over the tasks and seeds that both have (so a task "
    "where the ceiling is near the template counts for little). 95 % bootstrap intervals over "
    "tasks × seeds. No share where the ceiling gains nothing, no interval where that may be so."
)


@dataclass(frozen=True)
class Coverage:
    """What a row gains over the template, in points of the metric, and as a share of the ceiling's.

    `share` is None where the ceiling's gain is not positive, and `share_interval` where that is so
    in one of forty resamples. No intervals of fewer than `LEAST_PLACES`.
    """

    row: str
    places: int  # tasks × seeds
    gain: float
    gain_interval: tuple[float, float] | None
    share: float | None
    share_interval: tuple[float, float] | None


def coverage(frame: pd.DataFrame, ceiling: str) -> Iterator[Coverage]:
    """Yield the coverage of every row that shares a model, task and seed with the ceiling."""
    finished = frame[frame["finished"].astype(bool)]
    keys = [finished[name] for name in PLACE]
    gains = 100 * (finished["test"] - finished["zero_shot"]).astype(float)
    by_row = gains.groupby([*keys, finished["row"]]).last().unstack("row")
    if ceiling not in by_row:
        return
    for row in (row for row in frame["row"].unique() if row in by_row):
        both = by_row[[row]].assign(most=by_row[ceiling]).dropna().to_numpy()
        if len(both):
            yield _coverage(row, both[:, 0], both[:, 1])


def _coverage(row: str, own: np.ndarray, most: np.ndarray) -> Coverage:
    draws = stream(0, "coverage").integers(len(own), size=(RESAMPLES, len(own)))
    gains, totals = own[draws].mean(axis=1), most[draws].mean(axis=1)
    share = float(own.sum() / most.sum()) if most.sum() > 0 else None
    interval = None
    if share is not None and np.percentile(totals, 2.5) > 0:
        interval = _middle(gains[totals > 0] / totals[totals > 0])
    if len(own) < LEAST_PLACES:
        return Coverage(row, len(own), float(own.mean()), None, share, None)
    return Coverage(row, len(own), float(own.mean()), _middle(gains), share, interval)


def _middle(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def coverage_sheets(frame: pd.DataFrame, ceiling: str) -> Iterator[Sheet]:
    """Yield the headline's table: of all models together, then of each."""
    models = list(frame["model"].unique())
    groups = {EVERYTHING: frame} if len(models) > 1 else {}
    groups |= {str(model): frame[frame["model"] == model] for model in models}
    for name, group in groups.items():
        lines = tuple((one.row, _entries(one)) for one in coverage(group, ceiling))
        if lines:
            head = (f"{name}: share of {ceiling}", "share", "gain over the template", "runs")
            yield Sheet(f"{name}. {MEANING}", head, lines)


def _entries(one: Coverage) -> tuple[Entry, ...]:
    share = MISSING if one.share is None else f"{100 * one.share:.0f} %"
    if one.share_interval is not None:
        low, high = one.share_interval
        share += f" ({100 * low:.0f} – {100 * high:.0f})"
    gain = f"{one.gain:+.2f}"
    if one.gain_interval is not None:
        low, high = one.gain_interval
        gain += f" ({low:+.2f} – {high:+.2f})"
    places = Entry(str(one.places), one.places)
    return Entry(share, one.share), Entry(gain, one.gain), places
