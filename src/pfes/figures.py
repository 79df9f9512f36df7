"""Figures of a run and of a study."""

from pathlib import Path
from typing import Any

from pfes.studies.curves import Panel

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # told apart with any colour vision
COLORS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")


def convergence(history: list[dict[str, Any]], path: Path) -> None:
    """Draw loss, validation metric and step size over the evaluations of a run."""
    from matplotlib.figure import Figure

    spent = [line["evaluations"] for line in history]
    points = [
        (line["evaluations"], value)
        for line in history
        for value in line["losses"]
        if value is not None
    ]
    judged = [line for line in history if line["validation"] is not None]
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    top.plot(*zip(*points, strict=True), ".", color=GREY, ms=3, alpha=0.6, label="candidates")
    top.plot(spent, [line["best_loss"] for line in history], color=BLUE, label="best so far")
    top.set_ylabel("training loss")
    right = top.twinx()
    right.plot(
        [line["evaluations"] for line in judged],
        [line["validation"]["metric"] for line in judged],
        "o-", color=ORANGE, ms=4, label="validation (right axis)",
    )  # fmt: skip
    selected = [line for line in judged if line["selected"]][-1]
    right.plot(
        selected["evaluations"], selected["validation"]["metric"],
        "*", color=ORANGE, ms=14, label="selected",
    )  # fmt: skip
    right.set_ylabel("validation metric")
    handles = [*top.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    bottom.plot(spent, [line["sigma"] for line in history], color=BLUE)
    bottom.set_yscale("log")
    bottom.set_ylabel("step size σ")
    bottom.set_xlabel("function evaluations")
    figure.savefig(path, dpi=150)


def study_convergence(panels: list[Panel], path: Path) -> None:
    """Draw, for each model and task, the median over seeds of the best loss of every row."""
    from matplotlib.figure import Figure

    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1.2 + 3.4 * columns, 0.8 + 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    names = list(dict.fromkeys(curve.row for panel in panels for curve in panel.curves))
    handles = {}
    for place, panel in zip(axes, panels, strict=False):
        for curve in panel.curves:
            number = names.index(curve.row)
            (handles[curve.row],) = place.plot(
                curve.evaluations,
                curve.losses,
                STYLES[number // len(COLORS) % len(STYLES)],
                color=COLORS[number % len(COLORS)],
                lw=1.4,
            )
        place.set_title(f"{panel.task} · {panel.model}", fontsize=9)
        place.set_xlabel("function evaluations")
        place.set_ylabel("best loss, part of its first")
    for place in axes[len(panels) :]:
        place.set_visible(False)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False,
        fontsize=8,
    )  # fmt: skip
    figure.savefig(path, dpi=150)
