"""Two graphs of a study that reports what is free: the metric against evaluations, and labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from pfes.config import ALL
from pfes.reporting.sheets import MISSING, Entry, Sheet, figure_text
from pfes.runs.result import Result
from pfes.studies.plan import StudySpec

METRIC = "mean test metric, percent"


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


def graph_sheet(graph: Graph) -> Sheet:
    """Return the figures of a panel as a table: a column for each place on the axis."""
    columns = sorted({x for line in graph.lines if not line.level for x in line.x})
    lines = []
    for line in graph.lines:
        known = dict(zip(line.x, line.y, strict=True))
        values = [line.y[0] if line.level else known.get(x) for x in columns]
        entries = (Entry(MISSING if v is None else figure_text(v, None), v) for v in values)
        lines.append((line.name, tuple(entries)))
    head = (f"{graph.title}, {graph.x}", *(f"{x:g}" for x in columns))
    caption = f"{graph.title}: {METRIC}, over {graph.x}; every line has the same tasks and seeds"
    return Sheet(caption, head, tuple(lines))


def evaluation_graphs(
    spec: StudySpec, results: dict[int, Result], frame: pd.DataFrame
) -> list[Graph]:
    """Return a panel for each model: what each search had selected, after how many evaluations.

    Searches that were not tested earlier than at their end have no line. All lines of a panel are
    means over the same tasks and seeds: those that every one of its searches has.
    """
    graphs = []
    for model, own in frame.groupby("model", sort=False):
        done = own[own["finished"].astype(bool)]
        where = list(zip(done["task"], done["seed"], strict=True))
        groups = {
            row: dict(zip(runs["place"], runs.index, strict=True))
            for row, runs in done.assign(place=where).groupby("row", sort=False)
        }
        searches = {
            row: runs
            for row, runs in groups.items()
            if row != spec.ceiling
            and any(i in results and results[i].earlier for i in runs.values())
        }
        shared = set.intersection(*(set(runs) for runs in searches.values())) if searches else set()
        if not shared:
            continue
        lines = [
            _search_line(row, [results[runs[place]] for place in shared])
            for row, runs in searches.items()
        ]
        longest = max(line.x[-1] for line in lines)
        for row, runs in groups.items():
            own_places = shared & set(runs)
            chosen = done.loc[[runs[place] for place in own_places]]
            if own_places and (row == spec.ceiling or (chosen["evaluations"] == 0).all()):
                value = 100 * float(chosen["test"].astype(float).mean())
                lines.append(GraphLine(row, [0.0, longest], [value, value], level=True))
        graphs.append(Graph(str(model), "function evaluations", tuple(lines)))
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

    Only tasks and seeds that a row has with every number: a line does not bend because they change.
    """
    graphs = []
    done = frame[frame["finished"].astype(bool)]
    done = done[done["shots"] != ALL]
    for model, own in done.groupby("model", sort=False):
        lines = list(_label_lines(own))
        if lines:
            graphs.append(Graph(str(model), "labelled examples per class", tuple(lines)))
    return graphs


def _label_lines(own: pd.DataFrame) -> Iterator[GraphLine]:
    names = own["task"].map(lambda task: task.partition(", ")[0])
    values = 100 * own["test"].astype(float)
    table = values.groupby([own["row"], names, own["seed"], own["shots"]]).last().unstack("shots")
    several = [
        row for row in own["row"].unique() if (own["shots"][own["row"] == row].nunique() > 1)
    ]
    for row in several:
        by_place = table.loc[[row]].dropna(axis=1, how="all").dropna()
        if len(by_place) and by_place.shape[1] > 1:
            means = by_place.mean()
            yield GraphLine(row, [float(x) for x in means.index], means.tolist())
