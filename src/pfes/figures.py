"""Figures of a run."""

from pathlib import Path
from typing import Any

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


def study_convergence(
    histories: dict[tuple[str, str], dict[str, list[list[dict[str, Any]]]]], path: Path
) -> None:
    """Draw, for each model and task, the median over seeds of the best loss of every row.

    Rows have losses of their own (CE, CE + β·CR), so each is drawn as a part of its first value;
    RLPrompt's, which is a negative reward, has no such part and is left out.
    """
    import numpy as np
    from matplotlib.figure import Figure

    count = len(histories)
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(1.2 + 3.4 * columns, 0.8 + 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    names = list(dict.fromkeys(row for lines in histories.values() for row in lines))
    handles = {}
    for place, ((model, task), lines) in zip(axes, histories.items(), strict=False):
        for row, seeds in lines.items():
            if any(seed[0]["best_loss"] is None or seed[0]["best_loss"] <= 0 for seed in seeds):
                continue
            ends = [line["evaluations"] for line in min(seeds, key=len)]
            curves = [
                np.interp(
                    ends,
                    [line["evaluations"] for line in seed],
                    [line["best_loss"] / seed[0]["best_loss"] for line in seed],
                )
                for seed in seeds
            ]
            style = STYLES[names.index(row) // len(COLORS) % len(STYLES)]
            (handles[row],) = place.plot(
                ends,
                np.median(curves, axis=0),
                style,
                color=COLORS[names.index(row) % len(COLORS)],
                lw=1.4,
            )
        place.set_title(f"{task} · {model}", fontsize=9)
        place.set_xlabel("function evaluations")
        place.set_ylabel("best loss, part of its first")
    for place in axes[count:]:
        place.set_visible(False)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False,
        fontsize=8,
    )  # fmt: skip
    figure.savefig(path, dpi=150)
