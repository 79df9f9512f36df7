"""What the README and the documentation show is what the program takes."""

import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import pfes
from pfes.cli.quickstart import SETTINGS
from pfes.config import RunConfig, make_config
from pfes.studies.plan import StudySpec, plan_runs
from pfes.tasks import TaskSpec
from pfes.tasks.spec import DatasetSpec
from tests.cli.conftest import Cli
from tests.docs import pages
from tests.docs.conftest import SMALL
from tests.docs.pages import DOCS, PAGES, ROOT, Block, code_blocks

LANGUAGES = {"python", "sh", "yaml", "csv", "text"}  # text: what is printed, and formulas
FOREIGN = (  # commands of other programs, as far as they are shown
    "pip install vllm", "pip install peft", "vllm serve ",
    "python -m vllm.entrypoints.openai.api_server ",
    "head=", "srun ", "sleep ", "source .venv/bin/activate",
)  # fmt: skip
FOREIGN_OPTIONS = {"--enable-prompt-embeds", "--api-key"}  # vLLM's
CLUSTER = ("--engine ray", "s3://")  # tests/engines and tests/studies run these
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BLOCKS = [block for page in PAGES for block in code_blocks(page)]
SHELL = [(b.place, command) for b in BLOCKS if b.language == "sh" for command in pages.commands(b)]


def named(path: Path) -> str:
    return path.name


def test_there_is_something_to_check() -> None:
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert len(SHELL) > 30


def check_shell(command: str) -> None:
    """Check a command as far as that goes without running it."""
    words = shlex.split(command)
    if words[0] == "pfes":
        pages.check_command(command)
    elif words[0] == "make":
        assert set(words[1:]) <= TARGETS, f"not in the Makefile: {command}"
    elif command.startswith("python -m benchmarks"):
        place = ROOT / words[2].replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").exists(), f"no module {words[2]}"
    elif command.startswith("pip install") and "pfes[" in command:
        (extra,) = re.findall(r"pfes\[(.*?)\]", command)
        assert extra in EXTRAS, f"no extra {extra}: {command}"
    else:
        assert " ".join(words).startswith(FOREIGN), f"neither ours nor expected: {command}"


@pytest.mark.parametrize(("place", "command"), SHELL)
def test_commands_are_taken(place: str, command: str) -> None:
    check_shell(command)


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_words_in_code_are_taken(path: Path) -> None:
    options = pages.all_options() | FOREIGN_OPTIONS
    for words in pages.words_in_code(path):
        if words.startswith("pfes "):
            pages.check_names(words)
        elif words.startswith(("make ", "python -m benchmarks", "pip install ")):
            check_shell(words)
        elif re.match(r"--[a-z]", words):
            name = re.match(r"--[a-z0-9-]+", words)
            assert name is not None
            assert name.group() in options, f"no option {name.group()}"


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "yaml"], ids=lambda b: b.place
)
def test_yaml_is_valid(block: Block) -> None:
    content = yaml.safe_load(block.text)
    if "templates" in content:
        assert TaskSpec.model_validate(content).fields
    else:
        assert plan_runs(StudySpec.model_validate(content), {})


def test_every_field_of_a_task_is_explained() -> None:
    text = (ROOT / "docs/own-data.md").read_text(encoding="utf-8")
    section = text.split("## Every field")[1].split("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    assert explained == TaskSpec.model_fields.keys() | DatasetSpec.model_fields.keys()


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    for target in pages.links(path):
        file = target.partition("#")[0]
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {target}"
        if path in DOCS:
            assert there.is_relative_to(ROOT / "docs"), f"{target} is not part of the site"


def test_the_site_has_every_page_and_asks_no_other_host() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    assert set(re.findall(r"[\w-]+\.md", json.dumps(config["nav"]))) == {p.name for p in DOCS}
    assert config["theme"]["font"] is False
    assert "http" not in text


def test_the_reference_has_every_public_name() -> None:
    text = pages.read_page(ROOT / "docs/api.md")
    shown = {}
    for path in re.findall(r"^::: (\S+)", text, flags=re.MULTILINE):
        home, _, name = path.rpartition(".")
        shown[name] = getattr(importlib.import_module(home), name)
    assert shown == {name: getattr(pfes, name) for name in pfes.__all__}


def test_the_reference_has_every_field_of_a_result() -> None:
    rows = re.findall(r"^\| (`.*?) \|", pages.read_page(ROOT / "docs/api.md"), flags=re.MULTILINE)
    fields = pfes.Result.model_fields.keys() | pfes.Result.model_computed_fields.keys()
    assert set(re.findall(r"\w+", " ".join(rows))) == fields


def test_quickstart_settings_are_valid() -> None:
    assert make_config(**SETTINGS).budget % make_config(**SETTINGS).population == 0


class Session:
    """Follows a page from top to bottom, with small budgets and a server of our own."""

    def __init__(self, cli: Cli, capsys: Any, url: str) -> None:
        self.cli = cli
        self.capsys = capsys
        self.url = url

    def follow(self, path: Path) -> list[str]:
        """Run all that can be run of a page; return what its Python blocks printed."""
        printed = []
        for block in code_blocks(path):
            if block.language == "python":
                printed.append(self.python(block))
            elif block.language == "sh":
                for command in pages.commands(block):
                    if command.startswith("pfes ") and not self.elsewhere(command):
                        self.command(command, block.place)
        return printed

    def elsewhere(self, command: str) -> bool:
        plain = " ".join(shlex.split(command))
        return any(part in plain for part in CLUSTER)

    def python(self, block: Block) -> str:
        code = re.sub(r"\bbudget=\d+", "budget=20", block.text)
        code = code.replace("http://127.0.0.1:8000/v1", self.url)
        exec(compile(code, block.place, "exec"), {"__name__": "__main__"})
        shown = self.capsys.readouterr().out
        assert shown.strip(), f"{block.place} printed nothing"
        return shown

    def command(self, text: str, place: str) -> str:
        text = re.sub(r"http://(127\.0\.0\.1|A|B):8000/v1", self.url, text)
        text = re.sub(r"\b(FOLDER_OR_HUB_NAME|FOLDER|MODEL)\b", "models/smollm2-135m", text)
        words = shlex.split(text)[1:]
        found, _ = pages.find_command(words)
        taken = pages.option_names(found)
        settings = SMALL | {"jobs": 1, "seeds": 0, "samples": 60, "data_dir": "glue"}
        if "auto" in words:
            settings["budget"] = 60  # five values in three rounds of whole generations
        if "--resume" not in words and words[0] in ("search", "analyze", "study"):
            for name, value in settings.items():
                option = f"--{name.replace('_', '-')}"
                # of a study, the file has been made small; what is given is then said over it
                if option in taken and (words[0] != "study" or option in words):
                    words += [option, str(value)]
        code, shown, log = self.cli(*words)
        assert code == 0, f"{place}: pfes {shlex.join(words)}\n{log}"
        return shown


@pytest.fixture
def session(desk: Path, cli: Cli, capsys: pytest.CaptureFixture[str], url: str) -> Session:
    return Session(cli, capsys, url)


RUNNABLE = [page for page in PAGES if page.name != "serving.md"]


@pytest.mark.parametrize("path", RUNNABLE, ids=named)
def test_a_page_can_be_followed(session: Session, path: Path) -> None:
    session.follow(path)


def test_the_client_without_pfes_agrees_with_predict(session: Session) -> None:
    (label,) = session.follow(ROOT / "docs/serving.md")
    shown = session.command('pfes predict runs/served --text "a great film"', "serving.md")
    assert shown.split("\t")[0] == label.strip()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("pfes search --no-such-option 1 --out runs/x", "no option --no-such-option"),
        ("pfes serach --out runs/x", "no command 'serach'"),
        ("pfes study walk small.yaml", "no command 'walk'"),
        ("pfes search --model a --task b", "Missing parameter: out"),
        ("pfes search --budget many --out runs/x", "many"),
        ("make coffee", "not in the Makefile"),
        ("pip install 'pfes[everything]'", "no extra everything"),
        ("python -m benchmarks.nothing", "no module"),
        ("rm -rf runs", "neither ours nor expected"),
    ],
)
def test_a_wrong_command_is_found(command: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_shell(command)


def test_a_wrong_page_is_found(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\npfes evaluate runs/nowhere\n```\n")
    with pytest.raises(AssertionError, match="does not exist"):
        session.follow(page)
    page.write_text("```python\nimport pfes\npfes.no_such_name\n```\n")
    with pytest.raises(AttributeError, match="no_such_name"):
        session.follow(page)


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text `--one\ntwo`.\n\n    pfes models\n\n* item:\n\n        A=1 pfes search \\\n"
        "            --out x &\n\n::: pfes.run\n    options: 1\n\n<!--\n```sh\nhidden\n```\n-->\n"
        "```python\n    x = 1\n```\n[a](b.md#c) [d](https://e.f)\n"
    )
    first, second, third = code_blocks(page)
    assert pages.commands(first) == ["pfes models"]
    assert pages.commands(second) == ["pfes search --out x"]
    assert (third.language, third.line, third.text) == ("python", 19, "    x = 1\n")
    assert pages.words_in_code(page) == ["--one two"]
    assert pages.links(page) == ["b.md#c"]
    assert RunConfig.model_fields.keys() >= SMALL.keys()
