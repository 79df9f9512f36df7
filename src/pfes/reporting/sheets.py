"""Tables ready to print, in Markdown or LaTeX."""

from collections.abc import Iterable
from dataclasses import dataclass

MISSING = "–"


def figure_text(average: float, deviation: float | None) -> str:
    """Return a mean as text, with its deviation if there is one."""
    return f"{average:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


@dataclass(frozen=True)
class Entry:
    """A cell of a printed table."""

    text: str
    value: float | None  # what the cell is sorted by
    rank: int | None = None  # 1 is the best of its column
    note: str = ""  # details, such as the value of each seed


@dataclass(frozen=True)
class Sheet:
    """A printed table, independent of the format."""

    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Entry, ...]], ...]  # label, and an entry for each other column
    notes: tuple[str, ...] = ()  # below the table


def markdown(sheets: Iterable[Sheet]) -> str:
    """Return tables in Markdown, the best bold and the second underlined."""
    styles = {1: "**{}**", 2: "<u>{}</u>"}
    parts = []
    for sheet in sheets:
        lines = [] if sheet.caption == sheet.head[0] else [sheet.caption, ""]
        lines += ["| " + " | ".join(map(escape_markdown, sheet.head)) + " |"]
        lines += ["|---" * len(sheet.head) + "|"]
        for label, entries in sheet.lines:
            texts = [styles.get(entry.rank or 0, "{}").format(entry.text) for entry in entries]
            lines.append("| " + " | ".join([escape_markdown(label), *texts]) + " |")
        lines += [line for note in sheet.notes for line in ("", escape_markdown(note))]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def latex(sheets: Iterable[Sheet]) -> str:
    """Return tables in LaTeX (booktabs), the best bold and the second underlined."""
    styles = {1: r"\textbf{%s}", 2: r"\underline{%s}"}
    parts = []
    for sheet in sheets:
        lines = [] if sheet.caption == sheet.head[0] else [escape_latex(sheet.caption), ""]
        lines += [r"\begin{tabular}{l" + "c" * (len(sheet.head) - 1) + "}", r"\toprule"]
        lines += [" & ".join(map(escape_latex, sheet.head)) + r" \\", r"\midrule"]
        for label, entries in sheet.lines:
            texts = [styles.get(e.rank or 0, "%s") % escape_latex(e.text) for e in entries]
            lines.append(" & ".join([escape_latex(label), *texts]) + r" \\")
        notes = [line for note in sheet.notes for line in ("", escape_latex(note))]
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes]) + "\n")
    return "\n\\bigskip\n".join(parts)


def escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def escape_latex(text: str) -> str:
    """Return text with LaTeX's special characters escaped and Greek letters as mathematics."""
    table = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    table |= {letter: "\\" + letter for letter in "&%$#_{}"}
    table |= {"<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", MISSING: "--", "−": "$-$"}
    table |= {"β": r"$\beta$", "σ": r"$\sigma$", "λ": r"$\lambda$", "μ": r"$\mu$", "√": r"$\surd$"}
    table |= {"γ": r"$\gamma$", "²": "$^2$"}
    parts = text.split("d̃")  # two characters: a letter and a combining tilde
    return r"$\tilde{d}$".join("".join(table.get(c, c) for c in part) for part in parts)
