"""What many tests use: tiny models, a tiny task, no network, no shared cache."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models; and workers must not fight over cores

from tests import tiny

# how fast a machine is must not decide whether a test passes
hypothesis_settings.register_profile(
    "pfes", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("pfes")


def pytest_configure(config: pytest.Config) -> None:
    """Keep fast tests away from the user's cache; slow ones need the real model there."""
    if config.option.markexpr not in ("slow", "served"):
        os.environ["PFES_CACHE"] = tempfile.mkdtemp(prefix="pfes-test-")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return model folders by architecture, each made once."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tiny.save_folder(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


LINES = [
    ("a wonderful film , moving and funny", "good"),
    ("a dull mess without a single idea", "bad"),
    ("great acting , great story", "good"),
    ("terrible , simply terrible", "bad"),
]

TASK = """\
name: films
dataset: {file: films.csv}
label: verdict
templates:
  masked: "{text} It was {mask}."
  causal: "Review: {text}\\nSentiment:"
verbalizers: {bad: terrible, good: great}
"""


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """A user's own task: a YAML file and a CSV file beside it."""
    folder = tmp_path / "task"
    folder.mkdir()
    rows = [f'"{text} , part {i}",{label}' for i in range(20) for text, label in LINES]
    (folder / "films.csv").write_text("text,verdict\n" + "\n".join(rows) + "\n")
    file = folder / "films.yaml"
    file.write_text(TASK)
    return file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cases the fuzz tests have tried."""
    passed = terminalreporter.stats.get("", [])  # how setting up and tearing down went
    counts = [
        value for report in passed for name, value in report.user_properties if name == "cases"
    ]
    if counts:
        terminalreporter.write_line(f"fuzz: {sum(counts)} cases in {len(counts)} tests")
