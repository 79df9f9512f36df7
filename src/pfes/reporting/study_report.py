"""The report of a study as far as it is done: tables, comparisons, a figure and a page."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pfes.reporting.comparisons import LEVEL, TEST, Comparison, compare
from pfes.reporting.coverage import coverage_sheets
from pfes.reporting.curves import Panel, make_panels
from pfes.reporting.graphs import Graph, evaluation_graphs, graph_sheet, label_graphs
from pfes.reporting.plots import draw_graphs, study_convergence
from pfes.reporting.sheets import MISSING, Sheet, escape_markdown, latex, markdown
from pfes.reporting.study_cost import cost_sheets
from pfes.reporting.sweeps import SweepPanel, draw_sweeps, make_sweeps
from pfes.reporting.tables import StudyTable, comma_separated, make_tables
from pfes.runs.result import Result
from pfes.studies.frame import read_results, study_frame, with_free_rows
from pfes.studies.plan import PlannedRun, StudySpec
from pfes.studies.store import FolderStore
from pfes.system.files import make_folder, replace_file

COMPARED = (
    "row", "against", "pairs", "better in", "median difference", "p", "corrected", "McNemar",
)  # fmt: skip


@dataclass(frozen=True)
class StudyReport:
    """The content of a study's report, independent of the format."""

    spec: StudySpec
    plan: list[PlannedRun]
    results: dict[int, Result]  # by index in the plan
    frame: pd.DataFrame  # a row for each planned run
    tables: list[StudyTable]
    comparisons: list[Comparison]
    panels: list[Panel]
    sweeps: list[SweepPanel]  # of a study of one setting
    shares: list[Sheet]  # how much of the way to the ceiling each row covers
    costs: list[Sheet]
    by_evaluations: list[Graph]
    by_labels: list[Graph]

    @property
    def summary(self) -> str:
        """A paragraph: how many runs are finished, and what the table's numbers mean."""
        budgets = sorted({result.evaluations for result in self.results.values()} - {0})
        sizes = sorted({result.test_examples for result in self.results.values()})
        return (
            f"{len(self.results)} of {len(self.plan)} runs are finished. Function evaluations: "
            f"{', '.join(map(str, budgets)) or 'none'}; test examples: "
            f"{', '.join(map(str, sizes)) or 'none'}. Mean ± deviation over seeds, in percent; "
            f"best bold, second underlined; {MISSING} is missing. s/FE: seconds per function "
            "evaluation."
        )

    @property
    def missing(self) -> list[str]:
        """The runs that are not finished, by name."""
        runs = (run for i, run in enumerate(self.plan) if i not in self.results)
        return [f"{r.label} · {r.column} · {r.model_name} · seed {r.config.seed}" for r in runs]

    @property
    def sheets(self) -> list[Sheet]:
        """The tables ready to print."""
        tables = [sheet for table in self.tables for sheet in table.sheets()]
        return [*tables, *map(graph_sheet, (*self.by_evaluations, *self.by_labels))]

    @property
    def compared(self) -> str:
        """A paragraph that explains the comparisons."""
        return (
            f"{TEST} over the models, tasks and seeds that both rows have; differences in points "
            "of the tasks' metrics. Corrected: by Holm's method, for the number of comparisons. "
            "McNemar: pairs of runs in which the row is better or worse by McNemar's exact test on "
            f"their test sentences, at {LEVEL:.0%} after Holm's correction for the number of pairs."
            + (f" Part: {self.spec.grids[0].name}." if self.spec.parts else "")
        )


def read_report(spec: StudySpec, plan: list[PlannedRun], store: FolderStore) -> StudyReport:
    """Read the finished runs of a study."""
    results = read_results(plan, store)
    frame = with_free_rows(study_frame(plan, results), results, spec.free)
    main = spec.grids[0].name  # the first part is what comparisons and the headline are about
    own = frame[frame["part"] == main]
    return StudyReport(
        spec,
        plan,
        results,
        frame,
        make_tables(spec, plan, frame),
        list(compare(own, spec.compare)),
        make_panels(plan, results, store),
        make_sweeps(spec, plan, own),
        list(coverage_sheets(own, spec.ceiling)) if spec.ceiling else [],
        list(cost_sheets(plan, results, main)) if spec.free else [],
        evaluation_graphs(spec, results, own),
        label_graphs(frame),
    )


def write_report(report: StudyReport, folder: Path, page: str | None = None) -> list[Path]:
    """Write tables, comparisons, figure and, if given, the page; return the paths of the files."""
    make_folder(folder)
    title = f"# {report.spec.title or report.spec.name}\n\n{report.summary}\n\n"
    texts = {
        "table.md": title + markdown(report.sheets),
        "table.tex": latex(report.sheets),
        "table.csv": comma_separated(report.tables),
        "comparisons.md": _comparisons(report),
    }
    further = {"headline.md": report.shares, "cost.md": report.costs}
    texts |= {name: markdown(sheets) for name, sheets in further.items() if sheets}
    if report.missing:
        texts["missing.md"] = "".join(f"- {escape_markdown(name)}\n" for name in report.missing)
    if page is not None:
        texts["report.html"] = page
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    files = [folder / name for name in texts]
    if report.panels:
        files.append(folder / "convergence.png")
        study_convergence(report.panels, files[-1])
    for name, graphs in (("evaluations", report.by_evaluations), ("labels", report.by_labels)):
        if graphs:
            files.append(folder / f"{name}.png")
            draw_graphs(graphs, files[-1])
    if report.sweeps:
        files.append(folder / "sensitivity.png")
        draw_sweeps(report.sweeps, str(report.spec.over), files[-1])
    return files


def shown_comparison(pair: Comparison) -> tuple[str, ...]:
    """Return the figures of a comparison as text, in the order of `COMPARED`."""
    few = "too few pairs that differ"
    p = few if pair.p is None else f"{pair.p:.3g}"
    corrected = MISSING if pair.corrected is None else f"{pair.corrected:.3g}"
    sentences = MISSING
    if pair.sentences_better is not None:
        sentences = f"{pair.sentences_better} better, {pair.sentences_worse} worse"
    return str(pair.pairs), str(pair.better), f"{pair.median:+.2f}", p, corrected, sentences


def _comparisons(report: StudyReport) -> str:
    lines = ["# Paired comparisons", "", report.compared, ""]
    lines += [f"| {' | '.join(COMPARED)} |", "|---" * len(COMPARED) + "|"]
    for pair in report.comparisons:
        names = (escape_markdown(pair.row), escape_markdown(pair.against))
        lines.append(f"| {' | '.join((*names, *shown_comparison(pair)))} |")
    return "\n".join(lines) + "\n"
