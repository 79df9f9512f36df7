"""Strange data: long files, texts of every kind, labels of every kind."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pfes
from pfes.tasks import load_task
from pfes.tasks.data import read_file
from tests.command import call
from tests.small_runs import small_settings


def test_a_long_data_file_is_not_held_in_memory(task_file: Path) -> None:
    rows = 100_000
    with (task_file.parent / "films.csv").open("w") as file:
        file.write("text,verdict\n")
        for i in range(rows):
            file.write(
                f"a film of the number {i} that has some more words,{('bad', 'good')[i % 2]}\n"
            )
    tracemalloc.start()
    task = load_task(task_file, test_limit=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(task.train), len(task.test)) == (32, 100)
    assert peak < 100 * rows  # a row held as an example takes several hundred bytes


STRANGE = [
    "ünïcödé 日本語 🎬 \u202e left",
    "tab\tnewline\nreturn\rnull\x00bell\x07escape\x1b[31m",
    "a" * 200_000,
    "{text} {mask} %s {0}",
    "<mask> [MASK] <s> </s> <|endoftext|>",
    "\ufeff\u200b .",
    "half a character: \ud83d",
    "=SUM(A1) <script>alert(1)</script>",
]


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_strange_texts_go_through_search_and_predict(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, name: str
) -> None:
    lines = [
        json.dumps({"text": text, "verdict": label})
        for text in STRANGE
        for label in ("good", "bad")
        for _ in range(4)
    ]
    (task_file.parent / "films.jsonl").write_text("\n".join(lines), encoding="utf-8")
    task_file.write_text(task_file.read_text().replace("films.csv", "films.jsonl"))
    out = tmp_path / "run"
    result = pfes.search(str(folders(name)), task_file, out=out, **small_settings())
    assert np.isfinite(result.train_loss)
    probabilities = pfes.Classifier.from_run(out).predict_proba([*STRANGE, ""])
    assert probabilities.shape == (len(STRANGE) + 1, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    for ending in ("csv", "tsv", "jsonl"):
        source, target = tmp_path / "in.jsonl", tmp_path / f"out.{ending}"
        source.write_text("\n".join(json.dumps({"text": text}) for text in [*STRANGE, " "]))
        done = call("predict", out, "--file", source, "--out", target)
        assert done.returncode == 0, done.stderr
        assert "1 rows have no text" in done.stderr
        rows = list(read_file(target))
        wanted = [text.replace("\ud83d", "?") for text in STRANGE]
        assert [row["text"] for row in rows] == [*wanted, " "]
        assert all(row["predicted"] in ("good", "bad") for row in rows[:-1])
        assert rows[-1]["predicted"] in (None, "")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("{no: bad, yes: good}", ['"no"', '"yes"']),
        ("{0: bad, 1: good}", ["0", "1"]),
        ("{0: bad, 1: good}", ['"0"', "1.0"]),
        ("{false: bad, true: good}", ["false", "true"]),
    ],
)
def test_labels_may_be_texts_numbers_and_truth_values(
    task_file: Path, words: str, values: list[str]
) -> None:
    lines = [f'{{"text": "film {i}", "verdict": {values[i % 2]}}}' for i in range(40)]
    (task_file.parent / "films.jsonl").write_text("\n".join(lines))
    text = task_file.read_text().replace("films.csv", "films.jsonl")
    task_file.write_text(text.replace("{bad: terrible, good: great}", words))
    task = load_task(task_file, 4)
    assert sorted(example.label for example in task.train) == [0] * 4 + [1] * 4
    assert all(int(e.fields["text"].split()[1]) % 2 == e.label for e in task.train)
