"""A page in a real browser: whatever it logs, and whatever it asks for, is recorded."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Opened:
    """An open page, with what went on in it."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Open files; at the end of a test nothing may have been logged or asked for."""
    made: list[Opened] = []

    def open_file(file: Path, **options: object) -> Opened:
        opened = Opened(browser.new_page(**options))
        opened.page.on("console", lambda message: opened.messages.append(message.text))
        opened.page.on("pageerror", lambda error: opened.messages.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(file.as_uri())
        assert opened.requests == [file.as_uri()]
        made.append(opened)
        return opened

    yield open_file
    for opened in made:
        assert opened.messages == []
        assert len(opened.requests) == 1, "the page asks for more than its own file"
        opened.page.close()
