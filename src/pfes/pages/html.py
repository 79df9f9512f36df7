"""The parts of a page, each as HTML; all text is escaped here and nowhere else."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import count
from typing import Any

_numbers = count(1)


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is shown, what it is sorted by, how it looks."""

    text: str
    value: float | str | None = None  # None sorts last; the text where it is not given
    style: str = ""  # names of CSS classes
    note: str = ""  # shown when hovered
    opens: str | None = None  # id of the dialog that a click opens
    share: float | None = None  # 0 to 1: how much the cell is filled


Row = Sequence[Cell | str]


def table(caption: str, head: Sequence[str], rows: Iterable[Row], row_heads: bool = True) -> str:
    """Return a sortable table; the first cell of a row names it."""
    columns = "".join(
        f'<th scope="col"><button type="button" class="sort">{escape(name)}</button></th>'
        for name in head
    )
    body = "".join(_row(row, row_heads) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Row, row_heads: bool) -> str:
    cells = [cell if isinstance(cell, Cell) else Cell(cell, cell) for cell in row]
    texts = []
    for i, cell in enumerate(cells):
        tag = "th" if row_heads and i == 0 else "td"
        attributes = ' scope="row"' if tag == "th" else ""
        if cell.style:
            attributes += f' class="{escape(cell.style)}"'
        if cell.note:
            attributes += f' title="{escape(cell.note)}"'
        if cell.value is not None:
            attributes += f' data-value="{escape(str(cell.value))}"'
        if cell.share is not None:
            attributes += f' style="--share:{100 * cell.share:.0f}%"'
        text = escape(cell.text)
        if cell.opens is not None:
            text = f'<button type="button" data-opens="{escape(cell.opens)}">{text}</button>'
        texts.append(f"<{tag}{attributes}>{text}</{tag}>")
    return f"<tr>{''.join(texts)}</tr>"


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return names and values, one below the other."""
    lines = (f"<div><dt>{escape(k)}</dt><dd>{escape(_shown(v))}</dd></div>" for k, v in pairs)
    return f"<dl>{''.join(lines)}</dl>"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def section(title: str, *parts: str) -> str:
    number = next(_numbers)
    return (
        f'<section aria-labelledby="s{number}"><h2 id="s{number}">{escape(title)}</h2>'
        f"{''.join(parts)}</section>"
    )


def dialog(name: str, title: str, *parts: str) -> str:
    """Return what a cell with `opens` opens."""
    return (
        f'<dialog id="{escape(name)}" aria-label="{escape(title)}"><form method="dialog">'
        f"<h3>{escape(title)}</h3><button>Close</button></form>{''.join(parts)}</dialog>"
    )


@dataclass(frozen=True)
class Line:
    """One series of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    dots: bool = False  # points without a line between them


def chart(
    title: str, x: str, y: str, lines: Sequence[Line], *, bars: bool = False, log: bool = False
) -> str:
    """Return a chart that the page's script draws: values on hover, zoom by dragging."""
    series = [{"name": s.name, "x": list(s.x), "y": list(s.y), "dots": s.dots} for s in lines]
    content = {"x": x, "y": y, "lines": series, "bars": bars, "log": log}
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<script type="application/json">{_json(content)}</script></figure>'
    )


def grid(*parts: str) -> str:
    """Return parts side by side, where there is room."""
    return f'<div class="grid">{"".join(parts)}</div>'


def _json(content: Any) -> str:
    """Return JSON that cannot end the element it stands in."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page(title: str, lead: str, *parts: str) -> str:
    """Return the whole page: one file that asks nobody for anything."""
    folder = files("pfes.pages")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<button type="button" id="theme" aria-label="Light or dark">◐</button>
</header>
<main>
<p class="lead">{escape(lead)}</p>
{"".join(parts)}
</main>
<script>{script}</script>
</body>
</html>
"""
