"""How much one setting matters: a small grid of runs, drawn with mean and deviation."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from pydantic import ValidationError

from pfes.analysis.artefacts import Artefacts
from pfes.errors import PfesError
from pfes.figures import COLORS
from pfes.methods import get_method, settings_of
from pfes.sheets import Entry, Sheet, figure_text
from pfes.studies.plan import StudySpec, short_name
from pfes.studies.report import StudyReport
from pfes.tasks.spec import validation_message

Over = Literal["beta", "intrinsic-dimension", "sigma0"]
VALUES: dict[str, tuple[float, ...]] = {  # the paper's
    "beta": (0.01, 0.1, 1, 10, 100),
    "intrinsic-dimension": (50, 100, 200, 300, 500, 1000),
    "sigma0": (1, 1e-1, 1e-2, 1e-3, 1e-4),
}
SYMBOLS = {"beta": "β", "intrinsic-dimension": "d̃", "sigma0": "σ0"}


def sensitivity_spec(
    over: str,
    values: tuple[float, ...],
    tasks: list[str],
    seeds: list[int],
    settings: dict[str, Any],
) -> StudySpec:
    """Return the study: one row for each value."""
    name = over.replace("-", "_")
    method = settings.get("method", "saes-id-cr")
    if name not in settings_of(get_method(method)):
        raise PfesError(f"--over {over}: {method} does not take it")
    rows = [{"label": f"{SYMBOLS[over]} = {value:g}", name: value} for value in values]
    rest = {key: value for key, value in settings.items() if key not in ("model", "seed", name)}
    try:
        return StudySpec(
            name=f"sensitivity-{over}",
            models=[settings["model"]],
            tasks=tasks,
            seeds=seeds,
            defaults=rest,
            rows=rows,
        )
    except ValidationError as error:
        raise PfesError(f"--over {over}: {validation_message(error)}") from None


def sensitivity_analysis(
    report: StudyReport, over: str, values: tuple[float, ...], out: Path
) -> list[Path]:
    """Turn the runs of `sensitivity_spec` into numbers, table and figure; return the files."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, run in enumerate(report.plan):
        if number in report.results:
            value = values[[str(row["label"]) for row in report.spec.rows].index(run.label)]
            entry = {"value": value, "seed": run.config.seed, "test": report.results[number].test}
            found.setdefault(run.task_name, []).append(entry)
    artefacts = Artefacts(out, f"sensitivity-{over}")
    model = report.spec.models[0]
    settings = {"model": model, "seeds": report.spec.seeds, **report.spec.defaults}
    artefacts.write(settings, {"tasks": found})
    means = {task: _means(runs, values) for task, runs in found.items()}
    title = f"{short_name(model)}, {report.plan[0].config.budget} evaluations"
    _draw(means, over, title, artefacts.figure)
    sheet = _sheet(means, over, values, title)
    return artefacts.tabulate(f"Sensitivity to {SYMBOLS[over]}", _words(means, over), [sheet])


Means = dict[float, tuple[float, float | None]]


def _means(runs: list[dict[str, Any]], values: tuple[float, ...]) -> Means:
    found: Means = {}
    for value in values:
        tests = [100 * run["test"] for run in runs if run["value"] == value]
        if tests:
            found[value] = (mean(tests), stdev(tests) if len(tests) > 1 else None)
    return found


def _sheet(means: dict[str, Means], over: str, values: tuple[float, ...], title: str) -> Sheet:
    lines = []
    for value in values:
        entries = []
        for found in means.values():
            figure = found.get(value)
            entries.append(Entry(figure_text(*figure), figure[0]) if figure else Entry("–", None))
        lines.append((f"{value:g}", tuple(entries)))
    caption = f"{title}; test metric in percent, mean ± deviation over seeds"
    return Sheet(caption, (SYMBOLS[over], *means), tuple(lines))


def _words(means: dict[str, Means], over: str) -> Iterator[str]:
    for task, found in means.items():
        best = max(found, key=lambda value: found[value][0])
        worst = min(found, key=lambda value: found[value][0])
        gap = found[best][0] - found[worst][0]
        if gap == 0:
            yield f"{task}: no value of {SYMBOLS[over]} is better than another."
            continue
        yield (
            f"{task}: best at {SYMBOLS[over]} = {best:g}, worst at {worst:g}, "
            f"{gap:.2f} points between them."
        )


def _draw(means: dict[str, Means], over: str, title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5, 2.8), layout="constrained")
    place = figure.subplots()
    for number, (task, found) in enumerate(means.items()):
        averages, deviations = zip(*found.values(), strict=True)
        place.errorbar(
            list(found),
            averages,
            yerr=[deviation or 0 for deviation in deviations],
            fmt="o-",
            color=COLORS[number % len(COLORS)],
            capsize=3,
            lw=1.3,
            ms=4,
            label=task,
        )
    place.set_xscale("log")
    shown = sorted({value for found in means.values() for value in found})
    place.set_xticks(shown, [f"{value:g}" for value in shown])
    place.minorticks_off()
    place.set_title(title, fontsize=9)
    place.set_xlabel(SYMBOLS[over])
    place.set_ylabel("test metric (%)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=200)
