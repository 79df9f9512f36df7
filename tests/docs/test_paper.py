"""docs/paper.md: its commands make every table and figure of the paper, here with tiny models."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pfes.reporting.paper import paper_table
from pfes.studies import plan
from pfes.studies.plan import builtin_studies, read_study_spec
from tests.cli.conftest import Cli
from tests.conftest import LINES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
MODELS = {  # the paper's, and what stands in for them
    "FacebookAI/roberta-large": "roberta", "facebook/opt-6.7b": "opt",
    "distilbert/distilgpt2": "gpt2",
}  # fmt: skip
NUMBERED = {
    "Table I", "Table II", "Table III", "Table IV", "Table V", "Table VI", "Table VII", "Table IX",
    "Figure 1", "Figure 2", "Figure 3",
}  # fmt: skip
STUDY = ["--budget", "4", "--seeds", "0", "--tasks", "sst2", "--data-dir", "glue"]
TINY = {"shots": 2, "population": 4, "test_limit": 4, "batch_tokens": 2048, "free": "none"}
ANALYSES = {
    "projection": ["--tasks", "sst2", "--budget", "25", "--data-dir", "glue"],
    "intrinsic-dimension": [
        "--tasks", "mrpc,sst2", "--prompt-lengths", "2,3", "--neighbours", "4,8",
        "--samples", "40", "--shots", "2", "--data-dir", "glue",
    ],
}  # fmt: skip

pytestmark = pytest.mark.xdist_group("paper")  # its studies share their runs


@pytest.fixture(scope="module")
def place(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the paper's models and data are tiny ones, under the same names."""
    place = tmp_path_factory.mktemp("paper")
    for name, architecture in MODELS.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).symlink_to(folders(architecture))
    for task, fields in {"sst2": ("sentence",), "mrpc": ("sentence1", "sentence2")}.items():
        (place / "glue" / task).mkdir(parents=True)
        for split in ("train", "validation"):
            rows = (
                dict.fromkeys(fields, f"{text} , {split} {i}") | {"label": int(label == "good")}
                for i in range(20)
                for text, label in LINES
            )
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (place / "glue" / task / f"{split}.jsonl").write_text(text)
    (place / "studies").mkdir()
    for name, file in builtin_studies().items():  # with the paper's rows, and tiny settings
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content["defaults"] |= TINY
        (place / "studies" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return place


@pytest.fixture
def tiny(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(plan, "BUILTIN", place / "studies")


def commands(section: str) -> list[list[str]]:
    """Return the words of a section's commands."""
    blocks = re.findall(r"```sh\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines]


def small(words: list[str]) -> list[str]:
    """Return a command with tiny settings in place of the paper's."""
    if words[0] == "study":
        return words + STUDY
    changes = ANALYSES.get(words[1], [])
    if "--tasks" in words and changes:
        at = words.index("--tasks")
        words = words[:at] + words[at + 2 :]
    expanded = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
    return [word for some in expanded for word in some] + changes


def run(cli: Cli, section: str) -> str:
    """Run the commands of a section; return what they print."""
    shown = []
    for words in commands(section):
        code, output, log = cli(*small(words))
        assert code == 0, f"pfes {shlex.join(words)}\n{log}"
        shown.append(output)
    return "\n".join(shown)


def test_every_table_and_figure_has_a_section() -> None:
    assert {name.split(":")[0] for name in SECTIONS} & NUMBERED == NUMBERED
    named = {words[2] for section in SECTIONS for words in commands(section) if words[0] == "study"}
    titles = {name: read_study_spec(name).title for name in builtin_studies()}
    assert named == {name for name, title in titles.items() if "the paper" in title}


STUDIES = [name for name in SECTIONS if any(words[0] == "study" for words in commands(name))]


@pytest.mark.parametrize("section", STUDIES)
def test_a_study_makes_its_table_or_figure(cli: Cli, tiny: None, section: str) -> None:
    shown = run(cli, section)
    if section.startswith("Table IX"):
        assert all(f"| {row} | sst2 |" in shown for row in ("saes-id", "saes-id-cr, β = 1")), shown
        assert "| SaES-ID-CR | sst2 | roberta-large | 90.25 ± 0.47 |" in shown
        return
    for _, _, name, *options in (words for words in commands(section) if words[1] == "report"):
        out = options[options.index("--out") + 1] if "--out" in options else "runs"
        folder, spec, paper = Path(out) / f"report-{name}", read_study_spec(name), paper_table(name)
        table = (folder / "table.md").read_text(encoding="utf-8")
        assert all(f"\n| {row['label']} |" in table for row in spec.rows)
        assert f"{len(spec.rows)} of {len(spec.rows)} runs are finished" in table
        for row in paper.rows if paper else ():
            assert re.search(rf"\n\| {re.escape(row)} \[\d\] \|", table)
        assert (folder / "convergence.png").exists()
        assert (folder / "sensitivity.png").exists() == (spec.over is not None)


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        ("Table I:", ("| sst2 | 0.0051 | 0.0100 | 0.9590 | 1.3843 |", "γ_OP | γ_PI")),
        ("Figure 1:", ("| 2 | 64 |", "| 3 | 96 |", "mrpc: estimate from", "sst2: estimate from")),
        ("Table V:", ("masked: '{sentence} Correct? {mask}.'", "entailment?")),
    ],
)
def test_an_analysis_makes_its_table_and_figure(
    cli: Cli, tiny: None, section: str, rows: tuple[str, ...]
) -> None:
    shown = run(cli, next(name for name in SECTIONS if name.startswith(section)))
    assert all(row in shown for row in rows), shown
    if section != "Table V:":
        figures = [Path(line) for line in shown.splitlines() if line.endswith(".png")]
        assert [figure.exists() for figure in figures] == [True]
