"""The report of a study as far as it is done: tables, comparisons, a figure and a page."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pfes.reporting.comparisons import TEST, Comparison, compare
from pfes.reporting.curves import Panel, make_panels
from pfes.reporting.plots import study_convergence
from pfes.reporting.sheets import MISSING, Sheet, escape_markdown, latex, markdown
from pfes.reporting.sweeps import SweepPanel, draw_sweeps, make_sweeps
from pfes.reporting.tables import StudyTable, comma_separated, make_tables
from pfes.runs.result import Result
from pfes.studies.frame import read_results, study_frame
from pfes.studies.plan import PlannedRun, StudySpec
from pfes.studies.store import FolderStore
from pfes.system.files import make_folder, replace_file


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
    def sheets(self) -> list[Sheet]:
        """The tables ready to print."""
        return [sheet for table in self.tables for sheet in table.sheets()]

    @property
    def compared(self) -> str:
        """A paragraph that explains the comparisons."""
        return (
            f"{TEST} over the models, tasks and seeds that both rows have; differences in points "
            "of the tasks' metrics. The p values are not corrected for the number of comparisons."
        )


def read_report(spec: StudySpec, plan: list[PlannedRun], store: FolderStore) -> StudyReport:
    """Read the finished runs of a study."""
    results = read_results(plan, store)
    frame = study_frame(plan, results)
    return StudyReport(
        spec,
        plan,
        results,
        frame,
        make_tables(spec, plan, frame),
        list(compare(frame)),
        make_panels(plan, results, store),
        make_sweeps(spec, plan, frame),
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
    if page is not None:
        texts["report.html"] = page
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    files = [folder / name for name in texts]
    if report.panels:
        files.append(folder / "convergence.png")
        study_convergence(report.panels, files[-1])
    if report.sweeps:
        files.append(folder / "sensitivity.png")
        draw_sweeps(report.sweeps, str(report.spec.over), files[-1])
    return files


def _comparisons(report: StudyReport) -> str:
    lines = ["# Paired comparisons", "", report.compared, ""]
    lines += ["| row | against | pairs | better in | median difference | p |", "|---" * 6 + "|"]
    for pair in report.comparisons:
        names = f"| {escape_markdown(pair.row)} | {escape_markdown(pair.against)} "
        p = "too few pairs that differ" if pair.p is None else f"{pair.p:.3g}"
        numbers = f"| {pair.pairs} | {pair.better} | {pair.median:+.2f} | {p} |"
        lines.append(names + numbers)
    return "\n".join(lines) + "\n"
