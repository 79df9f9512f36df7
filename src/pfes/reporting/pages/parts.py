"""The parts of a page as HTML, made by the macros of `parts.html`."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, the value it is sorted by, and its looks."""

    text: str
    value: float | str | None = None  # what it is sorted by; None sorts last
    style: str = ""  # names of CSS classes
    note: str = ""  # shown when the pointer is over the cell
    opens: str | None = None  # id of the dialog that a click opens
    share: float | None = None  # 0 to 1: how strongly the cell is coloured


Row = Sequence[Cell | str]
TALL = 40  # a table with more rows than this has a height of its own


@dataclass(frozen=True)
class Line:
    """One series of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    dots: bool = False  # points without a line between them


@cache
def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("pfes.reporting.pages", ""), autoescape=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    return environment


@cache
def _macros() -> Any:
    return _environment().get_template("parts.html").module


def table(
    caption: str, head: Sequence[str], rows: Iterable[Row], row_heads: bool = True, style: str = ""
) -> Markup:
    """Return a sortable table; with `row_heads`, the first cell of a row is its heading.

    `style` is "matrix" or "upright matrix" for a table as wide as it is high, whose columns are
    narrow; upright names need little room. A table of many rows scrolls.
    """
    cells = [[c if isinstance(c, Cell) else Cell(c, c) for c in row] for row in rows]
    tall = len(cells) > TALL and not style
    return Markup(_macros().table(caption, head, cells, row_heads, style, tall))


def folded(title: str, text: str) -> Markup:
    """Return a long text that is out of sight until its title is clicked."""
    return Markup(_macros().folded(title, text))


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Return a list of names and values, one below the other."""
    return Markup(_macros().facts([(name, _shown(value)) for name, value in pairs]))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def paragraph(text: str) -> Markup:
    return Markup(_macros().paragraph(text))


def heading(text: str) -> Markup:
    return Markup(_macros().heading(text))


def section(title: str, *parts: Markup) -> Markup:
    """Return a titled section of the page."""
    letters = (letter if letter.isalnum() else "-" for letter in title.lower())
    return Markup(_macros().section("".join(letters), title, parts))


def dialog(name: str, title: str, *parts: Markup) -> Markup:
    """Return a dialog, which a cell whose `opens` is `name` opens."""
    return Markup(_macros().dialog(name, title, parts))


def chart(
    title: str, x: str, y: str, lines: Sequence[Line], *, bars: bool = False, log: bool = False
) -> Markup:
    """Return a chart, drawn by the page's script: hover for values, drag to zoom."""
    series = [{"name": s.name, "x": list(s.x), "y": list(s.y), "dots": s.dots} for s in lines]
    content = {"x": x, "y": y, "lines": series, "bars": bars, "log": log}
    return Markup(_macros().chart(title, content))


def grid(*parts: Markup) -> Markup:
    """Return the parts side by side, as far as there is room."""
    return Markup(_macros().grid(parts))


def page(title: str, lead: str, *parts: Markup) -> str:
    """Return the whole page as one HTML file that loads nothing from elsewhere."""
    folder = files("pfes.reporting.pages")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            lead=lead,
            parts=parts,
            style=Markup(style),
            script=Markup(script),
            digest=Markup(digest),
        )
    )
