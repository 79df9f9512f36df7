"""The page of a study."""

from itertools import chain

from markupsafe import Markup

from pfes.reporting.pages.parts import (
    Cell,
    Line,
    Row,
    chart,
    dialog,
    facts,
    grid,
    heading,
    page,
    paragraph,
    section,
    table,
)
from pfes.reporting.sheets import MISSING, Entry, Sheet
from pfes.reporting.study_report import StudyReport
from pfes.reporting.sweeps import SYMBOLS
from pfes.runs.result import Result
from pfes.studies.plan import PlannedRun

RANKS = {1: "number best", 2: "number second"}
RUNS = ("run", "model", "task", "seed", "metric", "zero-shot", "found", "FEs", "s/FE")


def study_page(report: StudyReport) -> str:
    """Return the page: tables, curves, comparisons, and every run with its settings."""
    parts = [section("Results", *chain.from_iterable(map(_sheet, report.sheets)))]
    if report.panels:
        parts.append(section("Convergence", paragraph(CURVES), grid(*_curves(report))))
    if report.sweeps:
        parts.append(section("Sensitivity", paragraph(SWEEPS), grid(*_sweeps(report))))
    if report.comparisons:
        parts.append(section("Paired comparisons", paragraph(report.compared), _compared(report)))
    parts.append(section("Runs", _runs(report)))
    parts += [_details(i, report.plan[i], result) for i, result in report.results.items()]
    return page(report.spec.title or report.spec.name, report.summary, *parts)


CURVES = (
    "Cross-entropy on the training examples of the best candidate so far, whatever a row "
    "minimises. Median over seeds."
)
SWEEPS = "Mean over seeds; the tables above have the deviations."


def _sheet(sheet: Sheet) -> list[Markup]:
    rows: list[Row] = [[label, *map(_entry, entries)] for label, entries in sheet.lines]
    return [table(sheet.caption, sheet.head, rows), *map(paragraph, sheet.notes)]


def _entry(entry: Entry) -> Cell:
    style = RANKS.get(entry.rank or 0, "number")
    return Cell(entry.text, entry.value, style, entry.note)


def _curves(report: StudyReport) -> list[Markup]:
    return [
        chart(
            f"{panel.task} · {panel.model}",
            "function evaluations",
            f"training {panel.loss}",
            [Line(curve.row, curve.evaluations, curve.losses) for curve in panel.curves],
        )
        for panel in report.panels
    ]


def _sweeps(report: StudyReport) -> list[Markup]:
    return [
        chart(
            f"{panel.task} · {panel.model}",
            SYMBOLS[str(report.spec.over)],
            "test metric (%)",
            [Line(sweep.strategy, sweep.values, sweep.means) for sweep in panel.sweeps],
        )
        for panel in report.sweeps
    ]


def _compared(report: StudyReport) -> Markup:
    head = ("row", "against", "pairs", "better in", "median difference", "p")
    rows = []
    for pair in report.comparisons:
        p = "too few pairs that differ" if pair.p is None else f"{pair.p:.3g}"
        rows.append(
            (
                pair.row,
                Cell(pair.against, pair.against),
                Cell(str(pair.pairs), pair.pairs, "number"),
                Cell(str(pair.better), pair.better, "number"),
                Cell(f"{pair.median:+.2f}", pair.median, "number"),
                Cell(p, pair.p, "number"),
            )
        )
    return table("Every pair of rows", head, rows)


def _runs(report: StudyReport) -> Markup:
    rows: list[Row] = []
    for i, run in enumerate(report.plan):
        names = (Cell(run.model_name, run.model_name), Cell(run.task_name, run.task_name))
        seed = Cell(str(run.config.seed), run.config.seed, "number")
        result = report.results.get(i)
        if result is None:
            rows.append((run.label, *names, seed, *[Cell(MISSING)] * 5))
            continue
        seconds = result.seconds_per_evaluation
        rows.append(
            (
                Cell(run.label, run.label, opens=_dialog_name(i)),
                *names,
                seed,
                Cell(result.metric, result.metric),
                Cell(f"{result.zero_shot:.4f}", result.zero_shot, "number"),
                Cell(f"{result.test:.4f}", result.test, "number"),
                Cell(str(result.evaluations), result.evaluations, "number"),
                Cell(MISSING if seconds is None else f"{seconds:.3f}", seconds, "number"),
            )
        )
    return table("Every run; its name opens its details", RUNS, rows)


def _details(number: int, run: PlannedRun, result: Result) -> Markup:
    title = f"{run.label} · {run.task_name} · {run.model_name} · seed {run.config.seed}"
    return dialog(_dialog_name(number), title, *run_facts(result), facts([("folder", run.folder)]))


def run_facts(result: Result) -> list[Markup]:
    """Return the results, settings and environment of a run."""
    names = ("validation", "initial", "train_loss", "selected_at", "beta", "probability", "rank")
    results = [(name.replace("_", " "), getattr(result, name)) for name in names]
    return [
        heading("Figures"), facts(results),
        heading("Settings"), facts(result.config.items()),
        heading("Environment"), facts(result.environment.items()),
    ]  # fmt: skip


def _dialog_name(number: int) -> str:
    return f"run-{number}"
