"""Data on the Hub, by a stand-in for its library that counts how often a split is read."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import yaml

from pfes.runs.result import Result
from pfes.studies.execute import execute_runs
from pfes.studies.plan import StudySpec, plan_runs
from pfes.tasks.loader import forget_splits, load_task
from tests.small_runs import study_defaults

WORDS = {0: "terrible", 1: "great"}
TASK = {
    "name": "films",
    "templates": {"causal": "Review: {sentence}\nSentiment:"},
    "verbalizers": WORDS,
}


class Split:
    """Rows as `datasets` has them: a slice by numbers is a dictionary of columns."""

    def __init__(self, rows: list[dict[str, Any]], counts: Counter[str]) -> None:
        self.rows = rows
        self.counts = counts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.counts["read"] += 1
        return iter(self.rows)

    def __getitem__(self, numbers: list[int]) -> dict[str, list[Any]]:
        self.counts["rows"] += len(numbers)
        return {name: [self.rows[i][name] for i in numbers] for name in self.rows[0]}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """What is asked of a Hub that has one data set, in which every third row is of another kind."""
    counts: Counter[str] = Counter()

    def load(name: str, config: str | None, split: str) -> Split:
        assert (name, config) == ("owner/films", "plain")
        counts["loaded"] += 1
        rows = [
            {"sentence": f"{split} film {i} , {WORDS[i % 2]}", "label": i % 2, "kind": f"k{i % 3}"}
            for i in range(60)
        ]
        return Split(rows, counts)

    def about(*_: object, **__: object) -> None:
        counts["asked"] += 1

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", about)
    yield counts
    forget_splits()  # the next test has another Hub


def write(folder: Path, dataset: dict[str, Any], suffix: str) -> Path:
    file = folder / f"films{suffix}.yaml"
    file.write_text(yaml.safe_dump(TASK | {"dataset": dataset | {"where": {"kind": "k1"}}}))
    return file


HUB = {"hub": "owner/films", "config": "plain", "train": "train", "test": "validation"}


def test_rows_by_number_are_those_of_a_file(tmp_path: Path, counts: Counter[str]) -> None:
    """The same task from the Hub and from a copy of its files, whatever the rows before it."""
    task = write(tmp_path, HUB, "")
    copy = tmp_path / "copy" / "films"
    copy.mkdir(parents=True)
    for split in ("train", "validation"):
        lines = [",".join(("sentence", "label", "kind"))]
        rows = datasets.load_dataset("owner/films", "plain", split=split).rows
        lines += [f'"{row["sentence"]}",{row["label"]},{row["kind"]}' for row in rows]
        (copy / f"{split}.csv").write_text("\n".join(lines) + "\n")
    for seed in (0, 1):
        there = load_task(task, 2, seed)
        here = load_task(task, 2, seed, data_dir=tmp_path / "copy")
        assert there == here
        assert len(there.test) == 20


def test_a_study_reads_each_split_once(tmp_path: Path, counts: Counter[str], folders) -> None:
    spec = StudySpec(
        name="tiny", models=[str(folders("llama"))], tasks=[str(write(tmp_path, HUB, ""))],
        seeds=[0, 1], defaults=study_defaults(prompt_length=2, budget=12, test_limit=6),
        rows=[{"method": "manual"}, {"method": "saes-id"}],
    )  # fmt: skip
    plan = plan_runs(spec, {})
    last = {event.number: event.event for event in execute_runs(plan, tmp_path / "runs")}
    assert all(isinstance(last[number], Result) for number in range(4))
    assert counts["loaded"] == counts["read"] == counts["asked"] == 2, "training and test"
    assert counts["rows"] == 4 * (8 + 8 + 6), "what the runs use: training, validation, test"
