"""Tables as they are printed: Markdown and LaTeX."""

from collections.abc import Iterable
from dataclasses import dataclass

MISSING = "–"


def figure_text(average: float, deviation: float | None) -> str:
    """Return a mean, with its deviation where there is one."""
    return f"{average:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


@dataclass(frozen=True)
class Entry:
    """A cell as it is printed."""

    text: str
    value: float | None  # to sort by
    rank: int | None = None  # 1 is the best of its column
    note: str = ""  # the figures behind it


@dataclass(frozen=True)
class Sheet:
    """A table as it is printed, in whichever format."""

    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Entry, ...]], ...]  # label, one entry for each other column


def markdown(sheets: Iterable[Sheet]) -> str:
    """Return tables for Markdown; best bold, second underlined."""
    styles = {1: "**{}**", 2: "<u>{}</u>"}
    parts = []
    for sheet in sheets:
        lines = [] if sheet.caption == sheet.head[0] else [sheet.caption, ""]
        lines += ["| " + " | ".join(map(escape_markdown, sheet.head)) + " |"]
        lines += ["|---" * len(sheet.head) + "|"]
        for label, entries in sheet.lines:
            texts = [styles.get(entry.rank or 0, "{}").format(entry.text) for entry in entries]
            lines.append("| " + " | ".join([escape_markdown(label), *texts]) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def latex(sheets: Iterable[Sheet]) -> str:
    """Return tables that need the package booktabs; best bold, second underlined."""
    styles = {1: r"\textbf{%s}", 2: r"\underline{%s}"}
    parts = []
    for sheet in sheets:
        lines = [] if sheet.caption == sheet.head[0] else [escape_latex(sheet.caption), ""]
        lines += [r"\begin{tabular}{l" + "c" * (len(sheet.head) - 1) + "}", r"\toprule"]
        lines += [" & ".join(map(escape_latex, sheet.head)) + r" \\", r"\midrule"]
        for label, entries in sheet.lines:
            texts = [styles.get(e.rank or 0, "%s") % escape_latex(e.text) for e in entries]
            lines.append(" & ".join([escape_latex(label), *texts]) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n\\bigskip\n".join(parts)


def escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def escape_latex(text: str) -> str:
    """Return text as LaTeX prints it, the paper's symbols as mathematics."""
    table = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    table |= {letter: "\\" + letter for letter in "&%$#_{}"}
    table |= {"<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", MISSING: "--", "−": "$-$"}
    table |= {"β": r"$\beta$", "σ": r"$\sigma$", "λ": r"$\lambda$", "μ": r"$\mu$", "√": r"$\surd$"}
    table |= {"γ": r"$\gamma$", "²": "$^2$"}
    parts = text.split("d̃")  # two characters: a letter and a combining tilde
    return r"$\tilde{d}$".join("".join(table.get(c, c) for c in part) for part in parts)
