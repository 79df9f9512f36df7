"""What the pages need to be followed: the model, data and files they mention, all of them tiny."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import AddedToken
from transformers import AutoTokenizer

from pfes.studies import plan
from tests import tiny
from tests.cli.conftest import cli as cli
from tests.conftest import LINES
from tests.docs.pages import ROOT, code_blocks
from tests.models.server import serving
from tests.models.text_server import serving_text

MODEL = "smollm2-135m"
WORDS = [" money", " technical"]  # of the pages' ticket task; one token each, as in the real model
SMALL: dict[str, Any] = {
    "budget": 8, "population": 4, "shots": 2, "test_limit": 8, "eval_every": 4,
    "batch_tokens": 2048,
}  # fmt: skip


@pytest.fixture(scope="session")
def cache(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with a tiny model and a few sentences under the names of the real ones."""
    cache = tmp_path_factory.mktemp("cache")
    model = tiny.save_folder("llama", cache / "models" / MODEL)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    assert len(tokenizer) <= tiny.COMMON["vocab_size"]
    tokenizer.save_pretrained(model)
    rows = [
        {"text": f"{text} , part {i}", "label": int(label == "good"), "source": "rotten_tomatoes"}
        for i in range(30)
        for text, label in LINES
    ]
    (cache / "data").mkdir()
    (cache / "data/movie-reviews.csv").write_text(table(rows))
    return cache


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server of the same tiny model."""
    with serving(tiny.make_module("llama"), [MODEL]) as server:
        server.max_logprobs = 128  # as the pages say
        yield server.url


@pytest.fixture(scope="session")
def text_url() -> Iterator[str]:
    """The address of a server that takes text alone."""
    with serving_text() as server:
        yield server.url


@pytest.fixture
def desk(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run a page's commands in, with the files that the page mentions."""
    monkeypatch.setenv("PFES_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / MODEL).symlink_to(cache / "models" / MODEL)
    tickets = only("own-data.md", "csv")
    (tmp_path / "tickets.yaml").write_text(only("own-data.md", "yaml"))
    rows = list(csv.DictReader(io.StringIO(tickets)))
    many = [row | {"text": f"{row['text']}, case {i}"} for i in range(40) for row in rows]
    (tmp_path / "tickets.csv").write_text(table(many))
    (tmp_path / "new.csv").write_text("id,text\n1,I was charged twice\n2,nothing loads\n")
    for split in ("train", "validation"):
        file = tmp_path / "glue/sst2" / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        sentences = [
            {"sentence": f"{text} , {split} {i}", "label": int(label == "good")}
            for i in range(20)
            for text, label in LINES
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in sentences))
    (tmp_path / "studies").mkdir()
    for name, file in plan.builtin_studies().items():
        small = shortened(file.read_text(encoding="utf-8"))
        (tmp_path / f"studies/{name}.yaml").write_text(small)
    monkeypatch.setattr(plan, "BUILTIN", tmp_path / "studies")
    (tmp_path / "mine.yaml").write_text(shortened(only("choosing.md", "yaml")))
    return tmp_path


def only(page: str, language: str) -> str:
    """Return the first block of a page that is written in a language."""
    return next(b.text for b in code_blocks(ROOT / "docs" / page) if b.language == language)


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as the text of a CSV file."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def shortened(study: str) -> str:
    """Return a study with one seed, few evaluations and two rows: its first, and one of SaES."""
    content = yaml.safe_load(study)
    content["seeds"] = [0]
    content["defaults"] = content.get("defaults", {}) | SMALL
    content["where"] = []
    for name in ("parts", "compare", "ceiling"):  # they name rows that are left out here
        content.pop(name, None)
    rows = content["rows"]
    content["rows"] = [rows[0], next((row for row in rows if "saes" in row["method"]), rows[-1])]
    return yaml.safe_dump(content)
