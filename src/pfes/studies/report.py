"""What a study found so far, as files: tables and a figure."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from pfes.figures import study_convergence
from pfes.folder import RunFolder
from pfes.result import Result
from pfes.run import finished
from pfes.studies.plan import PlannedRun, StudySpec
from pfes.studies.table import MISSING, StudyTable, make_tables

COMPARED = """# Paired comparisons

Wilcoxon signed-rank test (two-sided) over the models, tasks and seeds that both rows have;
differences in points of the tasks' metrics.
"""
FEWEST = 6  # pairs, below which a signed-rank test cannot reach 0.05


def read_results(plan: list[PlannedRun], out: Path) -> dict[int, Result]:
    """Return the results that there are, by place in the plan."""
    found = ((i, finished(RunFolder(out / run.folder))) for i, run in enumerate(plan))
    return {i: result for i, result in found if result is not None}


def write_report(spec: StudySpec, plan: list[PlannedRun], out: Path) -> list[Path]:
    """Write `table.md`, `table.tex`, `table.csv`, `comparisons.md` and `convergence.png`."""
    results = read_results(plan, out)
    tables = make_tables(plan, results)
    texts = {
        "table.md": _markdown(spec, plan, results, tables),
        "table.tex": "\n".join(table.latex() for table in tables),
        "table.csv": tables[0].csv() + "".join(t.csv().partition("\n")[2] for t in tables[1:]),
        "comparisons.md": _comparisons(plan, results),
    }
    files = []
    for name, text in texts.items():
        files.append(out / name)
        files[-1].write_text(text, encoding="utf-8")
    histories = _histories(plan, results, out)
    if histories:
        files.append(out / "convergence.png")
        study_convergence(histories, files[-1])
    return files


def _markdown(
    spec: StudySpec, plan: list[PlannedRun], results: dict[int, Result], tables: list[StudyTable]
) -> str:
    budgets = sorted({result.evaluations for result in results.values()} - {0})
    limits = sorted({str(result.test_examples) for result in results.values()})
    head = f"""# {spec.title or spec.name}

{len(results)} of {len(plan)} runs are finished. Function evaluations: \
{", ".join(map(str, budgets)) or "none"}; test examples: {", ".join(limits) or "none"}.
Mean ± deviation over seeds, in percent; best bold, second underlined; {MISSING} is missing.

"""
    return head + "\n".join(table.markdown() for table in tables)


def _comparisons(plan: list[PlannedRun], results: dict[int, Result]) -> str:
    """Return every pair of rows, compared on the same models, tasks and seeds."""
    from scipy.stats import wilcoxon

    by_row: dict[str, dict[Any, float]] = {}
    for i, result in results.items():
        cell = (plan[i].config.model, plan[i].config.task, plan[i].config.seed)
        by_row.setdefault(plan[i].label, {})[cell] = 100 * result.test
    lines = [COMPARED, "| row | against | pairs | median difference | p |", "|---|---|---|---|---|"]
    for left, right in combinations(by_row, 2):
        cells = sorted(by_row[left].keys() & by_row[right].keys())
        gaps = np.array([by_row[left][cell] - by_row[right][cell] for cell in cells])
        if not len(gaps):
            continue
        enough = np.count_nonzero(gaps) >= FEWEST
        p = f"{wilcoxon(gaps).pvalue:.3g}" if enough else "too few pairs that differ"
        lines.append(f"| {left} | {right} | {len(gaps)} | {np.median(gaps):+.2f} | {p} |")
    return "\n".join(lines) + "\n"


def _histories(
    plan: list[PlannedRun], results: dict[int, Result], out: Path
) -> dict[tuple[str, str], dict[str, list[list[dict[str, Any]]]]]:
    """Return the histories by model and task, then by row, one for each seed."""
    found: dict[tuple[str, str], dict[str, list[list[dict[str, Any]]]]] = {}
    for i in results:
        run = plan[i]
        history = RunFolder(out / run.folder).read_history()
        if history:
            place = found.setdefault((run.model_name, run.task_name), {})
            place.setdefault(run.label, []).append(history)
    return found
