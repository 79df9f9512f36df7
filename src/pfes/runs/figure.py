"""The figure of one run: loss, validation metric and step size over its evaluations."""

from io import BytesIO
from pathlib import Path
from typing import Any

from pfes.system.colors import BLUE, GREY, ORANGE
from pfes.system.files import replace_file


def draw_convergence(
    history: list[dict[str, Any]], selected: tuple[int, float], path: Path
) -> None:
    """Draw loss, validation metric and step size over the evaluations of a run.

    `selected` are the evaluations spent when the found prompt was reached, and its validation
    metric: no line of the history has them if the start was kept, at 0.
    """
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
    candidates = [x for x, _ in points], [y for _, y in points]
    top.plot(*candidates, ".", color=GREY, ms=3, alpha=0.6, label="candidates")
    top.plot(spent, [line["best_loss"] for line in history], color=BLUE, label="best so far")
    top.set_ylabel("training loss")
    right = top.twinx()
    right.plot(
        [line["evaluations"] for line in judged],
        [line["validation"]["metric"] for line in judged],
        "o-", color=ORANGE, ms=4, label="validation (right axis)",
    )  # fmt: skip
    right.plot(*selected, "*", color=ORANGE, ms=14, label="selected")
    right.set_ylabel("validation metric")
    handles = [*top.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    bottom.plot(spent, [line["sigma"] for line in history], color=BLUE)
    bottom.set_yscale("log")
    bottom.set_ylabel("step size σ")
    bottom.set_xlabel("function evaluations")
    content = BytesIO()
    figure.savefig(content, dpi=150)
    replace_file(path, content.getvalue())
