"""Tables as files: Markdown, LaTeX, CSV."""

import csv
import io
from collections.abc import Iterable

from pfes.studies.table import MISSING, Sheet, StudyTable


def markdown(tables: Iterable[StudyTable]) -> str:
    """Return tables for Markdown; best bold, second underlined."""
    styles = {1: "**{}**", 2: "<u>{}</u>"}
    parts = []
    for sheet in _sheets(tables):
        lines = [] if sheet.caption == sheet.head[0] else [sheet.caption, ""]
        lines += ["| " + " | ".join(map(escape_markdown, sheet.head)) + " |"]
        lines += ["|---" * len(sheet.head) + "|"]
        for label, entries in sheet.lines:
            texts = [styles.get(entry.rank or 0, "{}").format(entry.text) for entry in entries]
            lines.append("| " + " | ".join([escape_markdown(label), *texts]) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def latex(tables: Iterable[StudyTable]) -> str:
    """Return tables that need the package booktabs; best bold, second underlined."""
    styles = {1: r"\textbf{%s}", 2: r"\underline{%s}"}
    parts = []
    for sheet in _sheets(tables):
        lines = [] if sheet.caption == sheet.head[0] else [escape_latex(sheet.caption), ""]
        lines += [r"\begin{tabular}{l" + "c" * (len(sheet.head) - 1) + "}", r"\toprule"]
        lines += [" & ".join(map(escape_latex, sheet.head)) + r" \\", r"\midrule"]
        for label, entries in sheet.lines:
            texts = [styles.get(e.rank or 0, "%s") % escape_latex(e.text) for e in entries]
            lines.append(" & ".join([escape_latex(label), *texts]) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n\\bigskip\n".join(parts)


def _sheets(tables: Iterable[StudyTable]) -> Iterable[Sheet]:
    return (sheet for table in tables for sheet in table.sheets())


def comma_separated(tables: Iterable[StudyTable]) -> str:
    """Return one line for each model, row and task, with every seed's value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ["mean", "deviation", "seeds", "planned", "values", "seconds_per_evaluation"]
    writer.writerow(["model", "row", "task", *figures, "paper_model", "paper_mean"])
    for table in tables:
        for row in table.rows:
            for task in table.tasks:
                cell = table.cells[row, task]
                values = " ".join(map(str, cell.values))
                own = [cell.mean, cell.deviation, len(cell.values), cell.planned, values]
                paper = table.paper and table.paper.rows.get(row, {}).get(task)
                theirs = [table.paper.model, paper[0]] if table.paper and paper else [None, None]
                own += [table.seconds.get(row)]
                writer.writerow([table.model, row, task, *own, *theirs])
    return text.getvalue()


def escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def escape_latex(text: str) -> str:
    """Return text as LaTeX prints it, the paper's symbols as mathematics."""
    table = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    table |= {letter: "\\" + letter for letter in "&%$#_{}"}
    table |= {"<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", MISSING: "--", "−": "$-$"}
    table |= {"β": r"$\beta$", "σ": r"$\sigma$", "λ": r"$\lambda$", "μ": r"$\mu$", "√": r"$\surd$"}
    parts = text.split("d̃")  # two characters: a letter and a combining tilde
    return r"$\tilde{d}$".join("".join(table.get(c, c) for c in part) for part in parts)
