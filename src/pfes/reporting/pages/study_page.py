"""The page of a study."""

from collections.abc import Iterable, Iterator
from itertools import chain

from markupsafe import Markup

from pfes.reporting.graphs import METRIC, Graph
from pfes.reporting.pages.parts import (
    Cell,
    Line,
    Row,
    chart,
    dialog,
    facts,
    folded,
    grid,
    heading,
    page,
    paragraph,
    section,
    table,
)
from pfes.reporting.sheets import MISSING, Entry, Sheet
from pfes.reporting.study_report import COMPARED, StudyReport, shown_comparison
from pfes.reporting.sweeps import SYMBOLS
from pfes.runs.result import Result
from pfes.studies.plan import PlannedRun

RANKS = {1: "number best", 2: "number second"}
RUNS = ("run", "model", "task", "seed", "metric", "zero-shot", "found", "FEs", "s/FE")


def study_page(report: StudyReport) -> str:
    """Return the page: tables, curves, comparisons, and every run with its settings."""
    parts = []
    if report.shares:
        parts.append(section("How far it is to the ceiling", *_sheets(report.shares)))
    graphs = [*report.by_evaluations, *report.by_labels]
    if graphs:
        parts.append(section("Where it pays", grid(*map(_graph, graphs))))
    parts.append(section("Results", *_sheets(report.sheets)))
    if report.costs:
        parts.append(section("Cost", *_sheets(report.costs)))
    if report.panels:
        parts.append(section("Convergence", paragraph(CURVES), grid(*_curves(report))))
    if report.sweeps:
        parts.append(section("Sensitivity", paragraph(SWEEPS), grid(*_sweeps(report))))
    if report.comparisons:
        parts.append(section("Paired comparisons", paragraph(report.compared), _compared(report)))
    missing = report.missing
    note = [folded(f"{len(missing)} runs are missing", "\n".join(missing))] if missing else []
    parts.append(section("Runs", *note, _runs(report)))
    parts += [_details(i, report.plan[i], result) for i, result in report.results.items()]
    return page(report.spec.title or report.spec.name, report.summary, *parts)


CURVES = (
    "Cross-entropy on the training examples of the best candidate so far, whatever a row "
    "minimises. Median over seeds."
)
SWEEPS = "Mean over seeds; the tables above have the deviations."


def _sheets(sheets: Iterable[Sheet]) -> Iterator[Markup]:
    return chain.from_iterable(map(_sheet, sheets))


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


def _graph(graph: Graph) -> Markup:
    lines = [Line(line.name, line.x, line.y) for line in graph.lines]
    return chart(graph.title, graph.x, METRIC, lines)


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
    rows: list[Row] = []
    for pair in report.comparisons:
        values = (pair.pairs, pair.better, pair.median, pair.p, pair.corrected, None)
        shown = zip(shown_comparison(pair), values, strict=True)
        figures = [Cell(text, value, "number") for text, value in shown]
        rows.append((pair.row, Cell(pair.against, pair.against), *figures))
    return table("Pairs of rows", COMPARED, rows)


def _runs(report: StudyReport) -> Markup:
    rows: list[Row] = []
    for i, run in enumerate(report.plan):
        names = (Cell(run.model_name, run.model_name), Cell(run.column, run.column))
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
    title = f"{run.label} · {run.column} · {run.model_name} · seed {run.config.seed}"
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
