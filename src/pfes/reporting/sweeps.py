"""The test metric of a study over the setting in which its rows differ."""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import pandas as pd

from pfes.config import RunConfig
from pfes.methods import get_method
from pfes.studies.plan import PlannedRun, StudySpec
from pfes.system.colors import COLORS, STYLES

SYMBOLS = {"beta": "β", "intrinsic_dimension": "d̃", "sigma0": "σ0"}


@dataclass(frozen=True)
class Sweep:
    """One strategy over the values of the setting, in rising order."""

    strategy: str  # with its β, if that is not the setting
    values: tuple[float, ...]
    means: tuple[float, ...]  # of the test metric over seeds, in percent
    deviations: tuple[float, ...]  # 0 where there is one seed


@dataclass(frozen=True)
class SweepPanel:
    """The strategies on one model and task."""

    model: str
    task: str
    sweeps: tuple[Sweep, ...]


def make_sweeps(spec: StudySpec, plan: list[PlannedRun], frame: pd.DataFrame) -> list[SweepPanel]:
    """Return a panel for each model and task with finished runs; none if nothing is swept."""
    if spec.over is None:
        return []
    ended = frame[frame["finished"].astype(bool)]
    configs = [plan[i].config for i in ended.index]
    ended = ended.assign(
        value=[getattr(config, spec.over) for config in configs],
        strategy=[
            _strategy(plan[i].label, config, spec.over)
            for i, config in zip(ended.index, configs, strict=True)
        ],
    )
    return [
        SweepPanel(str(model), str(task), tuple(_sweeps(part)))
        for (model, task), part in ended.groupby(["model", "task"], sort=False)
    ]


def _strategy(label: str, config: RunConfig, over: str) -> str:
    """Return a row's label without the setting that is swept, and with its β."""
    name = label.partition(f", {SYMBOLS[over]} = ")[0]
    shows_beta = get_method(config.method).regularized and over != "beta"
    return f"{name}, β = {config.beta:g}" if shows_beta and config.beta != "auto" else name


def _sweeps(runs: pd.DataFrame) -> list[Sweep]:
    found = []
    for strategy, part in runs.groupby("strategy", sort=False):
        cells = [
            (float(value), [100 * float(test) for test in tests])
            for value, tests in part.groupby("value")["test"]
        ]
        values, tests = zip(*cells, strict=True)
        deviations = tuple(stdev(some) if len(some) > 1 else 0.0 for some in tests)
        found.append(Sweep(str(strategy), values, tuple(map(mean, tests)), deviations))
    return found


def draw_sweeps(panels: list[SweepPanel], over: str, path: Path) -> None:
    """Draw mean and deviation over the setting, a panel for each model and task."""
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(0.6 + 3.4 * columns, 0.4 + 3.0 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, panel in zip(axes, panels, strict=False):
        for number, sweep in enumerate(panel.sweeps):
            axis.errorbar(
                sweep.values,
                sweep.means,
                yerr=sweep.deviations,
                fmt="o" + STYLES[number // len(COLORS) % len(STYLES)],
                color=COLORS[number % len(COLORS)],
                capsize=3,
                lw=1.3,
                ms=4,
                label=sweep.strategy,
            )
        ticks = sorted({value for sweep in panel.sweeps for value in sweep.values})
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize=7)
        axis.minorticks_off()
        axis.set_title(f"{panel.task} · {panel.model}", fontsize=9)
        axis.set_xlabel(SYMBOLS[over])
        axis.set_ylabel("test metric (%)")
        axis.legend(fontsize=7, frameon=False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=150)
