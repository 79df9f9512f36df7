"""How much one setting matters: runs with several values of it, drawn with their deviation."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd
from pydantic import ValidationError

from pfes.analysis.artefacts import Artefacts
from pfes.config import DEFAULT_METHOD, make_config
from pfes.errors import PfesError
from pfes.methods import get_method, settings_of
from pfes.reporting.sheets import Entry, Sheet, figure_text
from pfes.reporting.study_report import StudyReport
from pfes.reporting.sweeps import SYMBOLS
from pfes.runs.check import check_settings
from pfes.studies.plan import StudySpec, short_name
from pfes.system.colors import COLORS
from pfes.tasks.spec import validation_message

VALUES: dict[str, tuple[float, ...]] = {  # values that the paper tries
    "beta": (0.01, 0.1, 1, 10, 100),
    "intrinsic-dimension": (50, 100, 200, 300, 500, 1000),
    "sigma0": (1, 1e-1, 1e-2, 1e-3, 1e-4),
}


def symbol(over: str) -> str:
    return SYMBOLS[over.replace("-", "_")]


def sensitivity_spec(
    over: str,
    values: tuple[float, ...],
    tasks: list[str],
    seeds: list[int],
    settings: dict[str, Any],
) -> StudySpec:
    """Return a study with one row for each value of the setting `over`."""
    name = over.replace("-", "_")
    method = settings.get("method", DEFAULT_METHOD)
    if name not in settings_of(get_method(method)):
        raise PfesError(f"--over {over}: the method {method} has no such setting")
    check_settings(make_config(**settings | {"task": tasks[0]}), settings.keys())
    rows = [{"label": f"{symbol(over)} = {value:g}", name: value} for value in values]
    defaults = {"init": "vocab", "sigma0": "paper"} | {
        key: value for key, value in settings.items() if key not in ("model", name)
    }
    try:
        return StudySpec(
            name=f"sensitivity-{over}",
            models=[settings["model"]],
            tasks=tasks,
            seeds=seeds,
            defaults=defaults,
            rows=rows,
        )
    except ValidationError as error:
        raise PfesError(f"--over {over}: {validation_message(error)}") from None


def sensitivity_analysis(
    report: StudyReport, over: str, values: tuple[float, ...], out: Path
) -> list[Path]:
    """Write numbers, table and figure of the runs of `sensitivity_spec`; return their paths."""
    by_label = dict(zip((str(row["label"]) for row in report.spec.rows), values, strict=True))
    runs = report.frame[report.frame["finished"].astype(bool)]
    runs = runs.assign(value=runs["row"].map(by_label), test=runs["test"].astype(float))
    by_task = dict(list(runs.groupby("task", sort=False)))
    tasks = {
        task: frame[["value", "seed", "test"]].to_dict("records") for task, frame in by_task.items()
    }
    artefacts = Artefacts(out, f"sensitivity-{over}")
    model = report.spec.models[0]
    settings = {"model": model, "seeds": report.spec.seeds, **report.spec.defaults}
    artefacts.write(settings, {"tasks": tasks})
    means = {str(task): _means(frame, values) for task, frame in by_task.items()}
    title = f"{short_name(model)}, {report.plan[0].config.budget} evaluations"
    _draw(means, over, title, artefacts.figure)
    sheet = _sheet(means, over, values, title)
    return artefacts.tabulate(f"Sensitivity to {symbol(over)}", _remarks(means, over), [sheet])


Means = dict[float, tuple[float, float | None]]


def _means(runs: pd.DataFrame, values: tuple[float, ...]) -> Means:
    """Return mean and deviation over seeds, in percent, for each value that has runs."""
    tests = {
        value: [100 * test for test in runs["test"][runs["value"] == value]] for value in values
    }
    return {
        value: (mean(metrics), stdev(metrics) if len(metrics) > 1 else None)
        for value, metrics in tests.items()
        if metrics
    }


def _sheet(means: dict[str, Means], over: str, values: tuple[float, ...], title: str) -> Sheet:
    lines = []
    for value in values:
        entries = []
        for by_value in means.values():
            result = by_value.get(value)
            entries.append(Entry(figure_text(*result), result[0]) if result else Entry("–", None))
        lines.append((f"{value:g}", tuple(entries)))
    caption = f"{title}; test metric in percent, mean ± deviation over seeds"
    return Sheet(caption, (symbol(over), *means), tuple(lines))


def _remarks(means: dict[str, Means], over: str) -> Iterator[str]:
    for task, by_value in means.items():
        best = max(by_value, key=lambda value: by_value[value][0])
        worst = min(by_value, key=lambda value: by_value[value][0])
        gap = by_value[best][0] - by_value[worst][0]
        if gap == 0:
            yield f"{task}: no value of {symbol(over)} is better than another."
            continue
        yield (
            f"{task}: best at {symbol(over)} = {best:g}, worst at {worst:g}, "
            f"{gap:.2f} points between them."
        )


def _draw(means: dict[str, Means], over: str, title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5, 2.8), layout="constrained")
    axis = figure.subplots()
    for number, (task, by_value) in enumerate(means.items()):
        averages, deviations = zip(*by_value.values(), strict=True)
        axis.errorbar(
            list(by_value),
            averages,
            yerr=[deviation or 0 for deviation in deviations],
            fmt="o-",
            color=COLORS[number % len(COLORS)],
            capsize=3,
            lw=1.3,
            ms=4,
            label=task,
        )
    axis.set_xscale("log")
    ticks = sorted({value for by_value in means.values() for value in by_value})
    axis.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axis.minorticks_off()
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(symbol(over))
    axis.set_ylabel("test metric (%)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=200)
