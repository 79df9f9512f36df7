"""Everything that the README and the documentation show works: commands, programs, files, links."""

import dataclasses
import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import pfes
from pfes.config import RunConfig, is_served, takes_only_text
from pfes.contract import Batch
from pfes.errors import PfesError
from pfes.methods import METHOD_SETTINGS, get_method, settings_of
from pfes.runs.check import LOCAL_SETTINGS
from pfes.searches.reading import PLAIN
from pfes.studies.plan import StudySpec, plan_runs
from pfes.tasks import TaskSpec
from pfes.tasks.encode import verbalizer_tokens
from pfes.tasks.spec import DatasetSpec
from tests.cli.conftest import Cli
from tests.docs import pages
from tests.docs.conftest import MODEL, SMALL, only
from tests.docs.pages import DOCS, PAGES, ROOT, Block, code_blocks

LANGUAGES = {"python", "sh", "yaml", "csv", "text"}  # text: output and formulas
FOREIGN = (  # commands of other programs
    "pip install vllm", "pip install peft", "vllm serve ",
    "python -m vllm.entrypoints.openai.api_server ",
    "python exports/fitted/answer.py ", "head=", "srun ", "sleep ", "source .venv/bin/activate",
)  # fmt: skip
FOREIGN_OPTIONS = {  # vLLM's
    "--enable-prompt-embeds", "--max-logprobs", "--max-model-len", "--api-key",
}  # fmt: skip
CLUSTER = ("--engine ray", "s3://", "--jobs 8")  # tests/models and tests/studies run these
NOTEBOOKS = {"README.md", "walk.md"}  # pages whose Python blocks build on one another
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BLOCKS = [block for page in PAGES for block in code_blocks(page)]
SHELL = [(b.place, command) for b in BLOCKS if b.language == "sh" for command in pages.commands(b)]


def named(path: Path) -> str:
    return path.name


def test_the_pages_have_blocks_of_every_language() -> None:
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert len(SHELL) > 30


def check_shell(command: str) -> None:
    """Check as much of a command as possible without running it."""
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
def test_commands_are_accepted(place: str, command: str) -> None:
    check_shell(command)


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_commands_and_options_in_backquotes_exist(path: Path) -> None:
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
def test_links_lead_to_existing_files(path: Path) -> None:
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


def table_after(entry: str) -> set[str]:
    """Return the names in the first column of the reference's tables about one entry."""
    text = pages.read_page(ROOT / "docs/api.md").split(f"::: {entry}\n")[1].split("\n:::")[0]
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return set(re.findall(r"\w+", " ".join(rows)))


def test_the_reference_has_every_field_of_a_result() -> None:
    fields = pfes.Result.model_fields.keys() | pfes.Result.model_computed_fields.keys()
    assert table_after("pfes.runs.result.Result") == fields


def test_the_reference_has_everything_that_a_model_of_ones_own_needs() -> None:
    parts = {field.name for field in dataclasses.fields(Batch)}
    attributes = pfes.LanguageModel.__annotations__.keys()
    assert table_after("pfes.contract.LanguageModel") == parts | attributes


def option(words: list[str], name: str, default: str) -> str:
    """Return the value of an option in a command, or the default."""
    return words[words.index(name) + 1] if name in words else default


def unused_settings(words: list[str]) -> set[str]:
    """Return the settings that the method or the model of a search would refuse."""
    model = option(words, "--model", "")
    usual = "icl" if takes_only_text(model) else "saes-id-cr"  # `pfes fit` chooses it
    method = get_method(option(words, "--method", usual))
    unused = METHOD_SETTINGS - set(settings_of(method))
    return unused.union(LOCAL_SETTINGS if is_served(model) else ())


class Session:
    """Follows a page from top to bottom, with small budgets and servers of its own."""

    def __init__(self, cli: Cli, capsys: Any, url: str, text_url: str) -> None:
        self.cli = cli
        self.capsys = capsys
        self.url = url
        self.text_url = text_url

    def follow(self, path: Path) -> list[str]:
        """Run everything on a page that can run here; return the output of its Python blocks."""
        printed = []
        shared: dict[str, Any] = {"__name__": "__main__"}
        for block in code_blocks(path):
            if block.language == "python":
                fresh = {"__name__": "__main__"}
                printed.append(self.python(block, shared if path.name in NOTEBOOKS else fresh))
            elif block.language == "sh":
                for command in pages.commands(block):
                    if command.startswith("pfes ") and not self.elsewhere(command):
                        self.command(command, block.place)
        return printed

    def elsewhere(self, command: str) -> bool:
        """Say whether a command needs a cluster, or several GPUs."""
        plain = " ".join(shlex.split(command))
        return any(part in plain for part in CLUSTER)

    def python(self, block: Block, names: dict[str, Any]) -> str:
        """Run a Python block with the names that it may use; return its output."""
        code = re.sub(r"\b(budget=|budget\": )\d+", r"\g<1>20", block.text)
        code = code.replace("http://127.0.0.1:8000/v1", self.url)
        exec(compile(code, block.place, "exec"), names)
        shown = self.capsys.readouterr().out
        assert shown.strip(), f"{block.place} printed nothing"
        return shown

    def command(self, text: str, place: str) -> str:
        """Run a command with small settings; return its output."""
        text = text.replace("openai:http://127.0.0.1:8000/v1", f"openai:{self.text_url}")
        text = re.sub(r"http://(127\.0\.0\.1|A|B):8000/v1", self.url, text)
        text = re.sub(r"\b(FOLDER_OR_HUB_NAME|FOLDER|MODEL)\b", "models/smollm2-135m", text)
        words = shlex.split(text)[1:]
        found, _ = pages.find_command(words)
        taken = pages.option_names(found)
        settings = SMALL | {"jobs": 1, "seeds": 0, "samples": 60, "data_dir": "glue"}
        if "auto" in words:
            settings["budget"] = 60  # five values in three rounds of whole generations
        if "--resume" not in words and words[0] in ("search", "fit", "analyze", "study"):
            unused = unused_settings(words)
            for name, value in settings.items():
                flag = f"--{name.replace('_', '-')}"
                # a study's file is small already, so only what the command itself sets is changed
                if flag in taken and name not in unused and (words[0] != "study" or flag in words):
                    words += [flag, str(value)]
        code, shown, log = self.cli(*words)
        assert code == 0, f"{place}: pfes {shlex.join(words)}\n{log}"
        return shown


@pytest.fixture
def session(
    desk: Path, cli: Cli, capsys: pytest.CaptureFixture[str], url: str, text_url: str
) -> Session:
    return Session(cli, capsys, url, text_url)


# paper.md in test_paper.py, the others below
FOLLOWED_BELOW = {"index.md", "paper.md", "production.md", "serving.md", "walk.md"}
OTHERS = [page for page in PAGES if page.name not in FOLLOWED_BELOW]


@pytest.mark.parametrize("path", OTHERS, ids=named)
def test_a_page_can_be_followed(session: Session, path: Path) -> None:
    session.follow(path)


def test_the_table_of_a_run_folder_names_every_file(session: Session) -> None:
    """Of a fit and a search that index.md shows, and of a run without a search."""
    page = ROOT / "docs/index.md"
    session.follow(page)
    section = page.read_text(encoding="utf-8").split("## What a search leaves")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    explained = set(re.findall(r"`(\.lock|[a-z-]+\.[a-z]+)`", " ".join(rows)))
    assert {file.name for file in Path("runs/tickets").iterdir()} == explained
    explained -= {"task.yaml", "choices.json", "report.html"}
    assert {file.name for file in Path("runs/first").iterdir()} == explained
    searched = {
        name for name in explained if name.startswith(("start", "history", "check", "convergence"))
    }
    session.command(
        "pfes search --model MODEL --task rotten-tomatoes --method manual --out runs/manual", "here"
    )
    assert {file.name for file in Path("runs/manual").iterdir()} == explained - searched


def test_the_walk_in_python_can_be_followed(session: Session) -> None:
    """From the first block to the last, in one namespace."""
    printed = session.follow(ROOT / "docs/walk.md")
    assert printed[1].startswith("4 4 2\n")  # as the page says
    assert (Path("walk/run/convergence.png")).exists()


def test_a_program_without_pfes_agrees_with_predict(session: Session) -> None:
    (label,) = session.follow(ROOT / "docs/serving.md")
    saved = dataclasses.replace(pfes.load_prompt("runs/served"), reading=PLAIN)
    plain = pfes.Classifier.from_prompt(saved, saved.open_model())
    assert str(plain.predict(["a great film"])[0]) == label.strip()


def test_a_server_answers_like_the_local_model(session: Session, cache: Path) -> None:
    """By `pfes predict --model vllm:URL`, and by the lines on the card of an export."""
    session.follow(ROOT / "docs/production.md")
    local = pfes.Classifier.from_run("runs/tickets")
    served = pd.read_csv("served.csv")
    assert list(served["predicted"]) == list(local.predict(served["text"]))
    for label, wanted in zip(local.classes_, local.predict_proba(served["text"]).T, strict=True):
        np.testing.assert_allclose(served[f"p_{label}"], wanted, atol=1e-4)
    export = Path("exports/tickets-vllm")
    files = {"README.md", "prompt.safetensors", "reading.safetensors"}
    assert {file.name for file in export.iterdir()} == files
    (block,) = [b for b in code_blocks(export / "README.md") if b.language == "python"]
    folder = cache / "models" / MODEL
    lines = block.text.replace("THIS_FOLDER", str(export)).replace("…", "nothing loads")
    lines = lines.replace(f'"model": {str(folder)!r}', f'"model": {MODEL!r}')  # the server's name
    printed = session.python(dataclasses.replace(block, text=lines), {"__name__": "__main__"})
    assert printed.split()[-1] == local.predict(["nothing loads"])[0]


def test_the_message_about_a_long_word_is_the_real_one() -> None:
    """The message in own-data.md is what the check of a task prints."""

    class Tokenizer:
        unk_token_id = None

        def tokenize(self, text: str) -> list[str]:
            return ["Ġunquestion", "ably"] if "unquestionably" in text else [text]

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [hash(token) for token in self.tokenize(text)]}

    content = yaml.safe_load(only("own-data.md", "yaml"))
    content["verbalizers"]["outage"] = "unquestionably"
    with pytest.raises(PfesError) as caught:
        verbalizer_tokens(TaskSpec.model_validate(content), Tokenizer())
    shown = only("own-data.md", "text").split()
    assert shown == f"pfes: {caught.value.for_command_line}".split()


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
def test_a_wrong_command_is_noticed(command: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_shell(command)


def test_a_wrong_page_is_noticed(session: Session, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\npfes evaluate runs/nowhere\n```\n")
    with pytest.raises(AssertionError, match="does not exist"):
        session.follow(page)
    page.write_text("```python\nimport pfes\npfes.no_such_name\n```\n")
    with pytest.raises(AttributeError, match="no_such_name"):
        session.follow(page)


def test_blocks_words_and_links_are_found(tmp_path: Path) -> None:
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
