"""The page of a study, in Chromium."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from pfes.reporting.pages.study_page import study_page
from pfes.reporting.study_report import StudyReport, read_report
from pfes.studies.execute import execute_runs
from pfes.studies.plan import StudySpec, plan_runs
from pfes.studies.store import FolderStore
from tests.reporting.conftest import Opened
from tests.small_runs import study_defaults

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
OpenPage = Callable[..., Opened]


@pytest.fixture(scope="module")
def report(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> StudyReport:
    """A study of a tiny model, one of its runs missing, one row with a hostile name."""
    folder = tmp_path_factory.mktemp("study")
    lines = [f'"film {i} , {word}",{word}' for i in range(30) for word in ("great", "terrible")]
    (folder / "films.csv").write_text("text,verdict\n" + "\n".join(lines) + "\n")
    (folder / "films.yaml").write_text(
        "name: films\ndataset: {file: films.csv}\nlabel: verdict\n"
        'templates: {causal: "Review: {text}\\nSentiment:"}\n'
        "verbalizers: {terrible: terrible, great: great}\n"
    )
    spec = StudySpec(
        name="main",
        title=f"A study {EVIL}",
        models=[str(folders("llama"))],
        tasks=[str(folder / "films.yaml")],
        seeds=[0, 1, 2],
        defaults=study_defaults(budget=36, prompt_length=2, test_limit=20, sigma0=None),
        rows=[
            {"label": "SaES-ID-CR", "method": "saes-id-cr"},
            {"label": EVIL, "method": "one-plus-one", "sigma0": 1.0},
            {"label": "ManualPrompt", "method": "manual"},
        ],
    )
    plan = plan_runs(spec, {})
    for _ in execute_runs(plan, folder / "out", range(len(plan) - 1)):
        pass
    return read_report(spec, plan, FolderStore(folder / "out"))


@pytest.fixture
def file(report: StudyReport, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(study_page(report), encoding="utf-8")
    return path


def column(table: Locator, number: int) -> list[str]:
    return table.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


def test_a_click_on_a_column_sorts_and_another_turns_the_order(
    open_page: OpenPage, file: Path
) -> None:
    page = open_page(file).page
    runs = page.get_by_role("table", name="Every run")
    head = runs.get_by_role("columnheader", name="found")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = column(runs, 7)
    assert rising[-1] == "–"  # what is missing stays at the end
    assert rising[:-1] == sorted(rising[:-1], key=float)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = column(runs, 7)
    assert falling[:-1] == sorted(falling[:-1], key=float, reverse=True)
    assert falling[-1] == "–"
    # texts, and numbers that sort differently as texts
    page.get_by_role("columnheader", name="FEs").get_by_role("button").click()
    assert column(runs, 8)[:-1] == sorted(column(runs, 8)[:-1], key=int)


def test_all_figures_are_those_of_the_runs(
    open_page: OpenPage, file: Path, report: StudyReport
) -> None:
    page = open_page(file).page
    runs = page.get_by_role("table", name="Every run")
    shown = column(runs, 7)
    wanted = [report.results[i].test if i in report.results else None for i in range(9)]
    assert shown == ["–" if value is None else f"{value:.4f}" for value in wanted]
    (table, *_) = report.tables
    cells = page.locator("section").first.locator("table").first.locator("tbody td").all()
    first = table.cells["SaES-ID-CR", "films"]
    assert cells[0].inner_text() == first.text
    assert cells[0].get_attribute("title") == "seeds: " + ", ".join(
        f"{value:.2f}" for value in first.values
    )
    assert "2/3" in page.get_by_role("row", name="ManualPrompt").first.inner_text()
    best = {row: table.rank(row, "films") for row in table.rows}
    bold = page.locator("section").first.locator("table").first.locator("td.best")
    assert bold.count() == list(best.values()).count(1)


def test_the_papers_figures_are_called_another_models(open_page: OpenPage, file: Path) -> None:
    page = open_page(file).page
    theirs = page.get_by_role("table", name="Figures of the paper")
    # none of the paper's tasks is in this study: missing, not guessed
    assert column(theirs, 2) == ["–", "–"]
    assert "not comparable" in theirs.inner_text()


def hover(page: Page, share: float) -> str:
    box = page.locator(".plot svg").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 76 + share * (box["width"] - 88), box["y"] + 120)
    return page.locator(".tip").first.inner_text()


def test_hovering_shows_exact_values(open_page: OpenPage, file: Path, report: StudyReport) -> None:
    page = open_page(file).page
    page.locator(".plot").first.scroll_into_view_if_needed()
    (panel,) = report.panels
    curve = next(curve for curve in panel.curves if curve.row == "SaES-ID-CR")
    text = hover(page, 1.0)
    assert "function evaluations 36" in text
    assert f"SaES-ID-CR: {float(f'{curve.losses[-1]:.6g}'):g}" in text
    between = hover(page, (curve.evaluations[0] + 2 - 1) / 35)
    assert "(at 6)" in between  # a generation ends at 6, the other row has every evaluation
    page.mouse.move(2, 2)
    assert page.locator(".tip").first.is_hidden()


def marks(page: Page) -> list[float]:
    """The numbers at the x axis of the first chart."""
    texts = page.locator(".plot").first.locator("svg > text[text-anchor=middle]")
    texts.first.wait_for()
    return [float(text) for text in texts.all_text_contents() if text.replace(".", "").isdigit()]


def test_zoom_by_dragging_and_back(open_page: OpenPage, file: Path) -> None:
    page = open_page(file).page
    chart = page.locator("figure.chart").first
    chart.scroll_into_view_if_needed()
    before = marks(page)
    hover(page, 0.25)
    page.mouse.down()
    hover(page, 0.6)
    assert page.locator(".zone").count() == 1
    page.mouse.up()
    inside = marks(page)
    assert min(inside) >= 9
    assert max(inside) <= 23
    assert inside != before
    chart.get_by_role("button", name="Show all").click()
    assert marks(page) == before
    assert chart.get_by_role("button", name="Show all").is_hidden()


def test_keys_read_and_zoom_and_the_legend_hides_a_line(open_page: OpenPage, file: Path) -> None:
    page = open_page(file).page
    chart = page.locator("figure.chart").first
    before = marks(page)
    chart.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    assert "function evaluations 1" in chart.locator(".tip").inner_text()
    page.keyboard.press("+")
    assert marks(page) != before
    for _ in range(80):
        page.keyboard.press("+")
    assert len(marks(page)) < 20
    page.keyboard.press("Escape")
    assert marks(page) == before
    assert chart.locator("path").count() == 2
    button = chart.get_by_role("button", name="SaES-ID-CR")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert chart.locator("path").count() == 1


def test_a_runs_details_are_one_click_away(
    open_page: OpenPage, file: Path, report: StudyReport
) -> None:
    page = open_page(file).page
    page.get_by_role("button", name="SaES-ID-CR").nth(2).scroll_into_view_if_needed()
    page.locator("[data-opens=run-3]").click()
    details = page.get_by_role("dialog")
    text = details.inner_text()
    result = report.results[3]
    assert "seed 1" in text
    for name, value in (result.config | result.environment).items():
        assert name in text
        if isinstance(value, str):
            assert value in text
    page.keyboard.press("Escape")
    assert details.is_hidden()


def test_text_of_runs_is_only_text(open_page: OpenPage, file: Path) -> None:
    opened = open_page(file)
    assert opened.page.locator("h1").inner_text() == f"A study {EVIL}"
    assert opened.page.locator("img").count() == 0
    label = opened.page.locator("figure.chart .legend button").nth(1).inner_text()
    assert label == EVIL
    assert "<script>alert" not in file.read_text(encoding="utf-8")
    # even a script that got in would not run: the page allows its own by hash
    blocked = opened.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        " document.body.append(s); return window.hacked; }"
    )
    assert blocked is None
    assert len(opened.messages) == 1
    assert "Content Security Policy" in opened.messages.pop()


def test_light_dark_and_phone(open_page: OpenPage, file: Path) -> None:
    light = open_page(file, color_scheme="light").page
    dark = open_page(file, color_scheme="dark", viewport={"width": 360, "height": 740}).page

    def background(page: Page) -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert background(light) != background(dark)
    light.get_by_role("button", name="Light or dark").click()
    assert background(light) == background(dark)
    widths = dark.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1], "the page is wider than a phone"


def test_everything_has_an_accessible_name(open_page: OpenPage, file: Path) -> None:
    page = open_page(file).page
    nameless = page.evaluate(
        "() => [...document.querySelectorAll('button, [role], section, dialog, table, th')]"
        ".filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')"
        " || e.textContent.trim() || e.getAttribute('role') === 'status')).map((e) => e.outerHTML)"
    )
    assert json.dumps(nameless) == "[]"
    assert page.locator("html").get_attribute("lang") == "en"
