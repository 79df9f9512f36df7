"""What a study found so far, as files: tables, comparisons, a figure, a page."""

from dataclasses import dataclass
from pathlib import Path

from pfes.errors import PfesError
from pfes.figures import study_convergence
from pfes.folder import replace_file
from pfes.result import Result
from pfes.sheets import MISSING, Sheet, escape_markdown, latex, markdown
from pfes.studies.compare import TEST, Comparison, compare
from pfes.studies.curves import Panel, make_panels
from pfes.studies.plan import PlannedRun, StudySpec
from pfes.studies.store import FolderStore
from pfes.studies.table import StudyTable, comma_separated, make_tables


@dataclass(frozen=True)
class StudyReport:
    """All that is shown of a study, whatever the format."""

    spec: StudySpec
    plan: list[PlannedRun]
    results: dict[int, Result]  # by place in the plan
    tables: list[StudyTable]
    comparisons: list[Comparison]
    panels: list[Panel]

    @property
    def summary(self) -> str:
        """How much there is of the study, and what its figures are."""
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
        """The tables as they are printed."""
        return [sheet for table in self.tables for sheet in table.sheets()]

    @property
    def compared(self) -> str:
        """What the comparisons are."""
        return (
            f"{TEST} over the models, tasks and seeds that both rows have; differences in points "
            "of the tasks' metrics. The p values are not corrected for the number of comparisons."
        )


def read_report(spec: StudySpec, plan: list[PlannedRun], store: FolderStore) -> StudyReport:
    """Read whatever runs of a study there are."""
    found = ((i, store.result(run.folder)) for i, run in enumerate(plan))
    results = {i: result for i, result in found if result is not None}
    return StudyReport(
        spec,
        plan,
        results,
        make_tables(spec, plan, results),
        list(compare(plan, results)),
        make_panels(plan, results, store),
    )


def write_report(report: StudyReport, place: Path, html: bool = False) -> list[Path]:
    """Write tables, comparisons and figure, and with `html` the page; return the files."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PfesError(f"--out {place}: {error.strerror}") from None
    title = f"# {report.spec.title or report.spec.name}\n\n{report.summary}\n\n"
    texts = {
        "table.md": title + markdown(report.sheets),
        "table.tex": latex(report.sheets),
        "table.csv": comma_separated(report.tables),
        "comparisons.md": _comparisons(report),
    }
    if html:
        from pfes.pages.study import study_page

        texts["report.html"] = study_page(report)
    for name, text in texts.items():
        replace_file(place / name, text.encode())
    files = [place / name for name in texts]
    if report.panels:
        files.append(place / "convergence.png")
        study_convergence(report.panels, files[-1])
    return files


def _comparisons(report: StudyReport) -> str:
    lines = ["# Paired comparisons", "", report.compared, ""]
    lines += ["| row | against | pairs | better in | median difference | p |", "|---" * 6 + "|"]
    for found in report.comparisons:
        names = f"| {escape_markdown(found.row)} | {escape_markdown(found.against)} "
        p = "too few pairs that differ" if found.p is None else f"{found.p:.3g}"
        figures = f"| {found.pairs} | {found.better} | {found.median:+.2f} | {p} |"
        lines.append(names + figures)
    return "\n".join(lines) + "\n"
