"""The wheel, installed into an empty environment: what a user has who knows only pip."""

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from pfes.studies.plan import builtin_studies, read_study_spec
from tests.conftest import LINES

ROOT = Path(__file__).parents[1]


def run(*words: object, cwd: Path) -> str:
    """Run a program outside the tree, without what would lead it back there."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=clean, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of an environment that has the wheel, and nothing else of pfes.

    What pfes requires is lent by the environment of the tests, as it takes gigabytes.
    """
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    source = folder / "source"  # a copy, as building leaves files behind
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # setuptools is there already: an isolated build would fetch it
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(*pip, *build, source, cwd=folder)
    (wheel,) = folder.glob("pfes-*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    target = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    run(*pip, "--python", environment / "bin/python", "install", "--no-deps", wheel, cwd=folder)
    lent = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (target / "lent.pth").write_text("\n".join(lent) + "\n")
    return environment / "bin"


def test_it_brings_the_studies_and_does_one(
    installed: Path, folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    where = run(installed / "python", "-c", "import pfes; print(pfes.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed.parent))
    shown = run(installed / "pfes", "study", "list", cwd=tmp_path)
    assert all(f" {name} " in shown for name in builtin_studies())
    lines = (f'"{text} , part {i}",{label}' for i in range(40) for text, label in LINES)
    (task_file.parent / "films.csv").write_text("text,verdict\n" + "\n".join(lines) + "\n")
    what = ("reading", "--model", folders("llama"), "--tasks", task_file, "--seeds", 13)
    assert "8 of 8 runs" in run(installed / "pfes", "study", "run", *what, cwd=tmp_path)
    report = run(installed / "pfes", "study", "report", *what, cwd=tmp_path).splitlines()
    table = tmp_path / next(line for line in report if line.endswith("table.md"))
    labels = [row["label"] for row in read_study_spec("reading").rows]
    assert all(f"| {label} |" in table.read_text(encoding="utf-8") for label in labels)
