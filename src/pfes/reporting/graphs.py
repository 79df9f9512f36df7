"""Two graphs of a study that reports what is free: the metric against evaluations, and labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from pfes.runs.result import Result
from pfes.studies.plan import PlannedRun, StudySpec

METRIC = "test metric, percent, mean over tasks and seeds"


@dataclass(frozen=True)
class GraphLine:
    """One row of a study; a level line where it costs no search, or is the ceiling."""

    name: str
    x: list[float]
    y: list[float]
    level: bool = False


@dataclass(frozen=True)
class Graph:
    """One panel."""

    title: str
    x: str
    lines: tuple[GraphLine, ...]


def evaluation_graphs(
    spec: StudySpec, plan: list[PlannedRun], results: dict[int, Result], frame: pd.DataFrame
) -> list[Graph]:
    """Return a panel for each model: what each search had selected, after how many evaluations.

    Searches that were not tested earlier than at their end have no line.
    """
    graphs = []
    for model, own in frame.groupby("model", sort=False):
        searches, places = [], set()
        for row in own["row"].unique():
            runs = [i for i in own.index[own["row"] == row] if i in results and results[i].earlier]
            if runs and row != spec.ceiling:
                searches.append(_search_line(row, [results[i] for i in runs]))
                places |= {(plan[i].column, plan[i].config.seed) for i in runs}
        longest = max((line.x[-1] for line in searches), default=0.0)
        level = []
        done = own[own["finished"].astype(bool)]
        there = [place in places for place in zip(done["task"], done["seed"], strict=True)]
        for row, runs in done[there].groupby("row", sort=False):
            if row == spec.ceiling or (runs["folder"] == "").all():
                value = 100 * float(runs["test"].astype(float).mean())
                level.append(GraphLine(str(row), [0.0, longest], [value, value], level=True))
        if searches:
            graphs.append(Graph(str(model), "function evaluations", (*searches, *level)))
    return graphs


def _search_line(row: str, results: list[Result]) -> GraphLine:
    """Return the mean over runs at the evaluations that all of them have."""
    points: dict[int, list[float]] = {}
    for result in results:
        for one in result.earlier:
            points.setdefault(one.at, []).append(100 * one.test)
    whole = {at: values for at, values in points.items() if len(values) == len(results)}
    end = max(result.config["budget"] for result in results)
    whole[end] = [100 * result.test for result in results]
    x = sorted(whole)
    return GraphLine(row, [float(at) for at in x], [sum(whole[at]) / len(results) for at in x])


def label_graphs(frame: pd.DataFrame) -> list[Graph]:
    """Return a panel for each model: the rows that were run with several numbers of labels.

    Only tasks that a row has with every number, so that a line does not bend because tasks change.
    """
    graphs = []
    done = frame[frame["finished"].astype(bool)]
    done = done[[isinstance(shots, int) for shots in done["shots"]]]
    for model, own in done.groupby("model", sort=False):
        lines = list(_label_lines(own))
        if lines:
            graphs.append(Graph(str(model), "labelled examples per class", tuple(lines)))
    return graphs


def _label_lines(own: pd.DataFrame) -> Iterator[GraphLine]:
    names = own["task"].map(lambda task: task.partition(", ")[0])
    values = 100 * own["test"].astype(float)
    table = values.groupby([own["row"], names, own["shots"]]).mean().unstack("shots")
    several = [
        row for row in own["row"].unique() if (own["shots"][own["row"] == row].nunique() > 1)
    ]
    for row in several:
        by_task = table.loc[[row]].dropna(axis=1, how="all").dropna()
        if len(by_task) and by_task.shape[1] > 1:
            means = by_task.mean()
            yield GraphLine(row, [float(x) for x in means.index], means.tolist())
