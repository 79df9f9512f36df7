"""Figures of a study."""

from pathlib import Path

from pfes.reporting.curves import Panel
from pfes.reporting.graphs import METRIC, Graph
from pfes.system.colors import COLORS, STYLES


def study_convergence(panels: list[Panel], path: Path) -> None:
    """Draw the panels: the loss of every row, median over seeds."""
    from matplotlib.figure import Figure

    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1.2 + 3.4 * columns, 0.8 + 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    names = list(dict.fromkeys(curve.row for panel in panels for curve in panel.curves))
    handles = {}
    for axis, panel in zip(axes, panels, strict=False):
        for curve in panel.curves:
            number = names.index(curve.row)
            (handles[curve.row],) = axis.plot(
                curve.evaluations,
                curve.losses,
                STYLES[number // len(COLORS) % len(STYLES)],
                color=COLORS[number % len(COLORS)],
                lw=1.4,
            )
        axis.set_title(f"{panel.task} · {panel.model}", fontsize=9)
        axis.set_xlabel("function evaluations")
        axis.set_ylabel(f"training {panel.loss}", fontsize=8)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False,
        fontsize=8,
    )  # fmt: skip
    figure.savefig(path, dpi=150)


def draw_graphs(graphs: list[Graph], path: Path) -> None:
    """Draw the metric of each row; what costs no search and the ceiling are dotted and level."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.8 + 4.2 * len(graphs), 4.2), layout="constrained")
    axes = figure.subplots(1, len(graphs), squeeze=False).flatten()
    names = list(dict.fromkeys(line.name for graph in graphs for line in graph.lines))
    handles = {}
    for axis, graph in zip(axes, graphs, strict=True):
        for line in graph.lines:
            number = names.index(line.name)
            style = ":" if line.level else STYLES[number // len(COLORS) % len(STYLES)]
            color = COLORS[number % len(COLORS)]
            marker = None if line.level else "o"
            (handles[line.name],) = axis.plot(
                line.x, line.y, style, color=color, marker=marker, ms=3, lw=1.4
            )
        axis.set_title(graph.title, fontsize=9)
        axis.set_xlabel(graph.x)
        axis.set_ylabel(METRIC, fontsize=8)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False,
        fontsize=7,
    )  # fmt: skip
    figure.savefig(path, dpi=150)
