"""From a labelled file to a task: columns, words, and the file that is written."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pfes.errors import PfesError
from pfes.tasks import load_task
from pfes.tasks.columns import find_columns
from pfes.tasks.draft import draft_task
from pfes.tasks.label_words import label_words
from tests import tiny
from tests.command import call

TEXTS = ["my invoice is wrong again", "the site is down for everybody", "how do I pay by card"]
TEAMS = ["billing", "outage", "billing"]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def tickets(count: int = 60, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": i, "team": TEAMS[i % 3], **more, "message": f"{TEXTS[i % 3]} {i}"}
        for i in range(count)
    ]


def test_columns_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    found = find_columns(write(tmp_path / "tickets.csv", tickets()))
    assert (found.label, found.texts, found.guessed) == ("team", ("message",), True)
    assert found.labels == {"billing": 40, "outage": 20}
    assert found.rows == 60


def test_a_name_speaks_for_a_label(tmp_path: Path) -> None:
    rows = [row | {"category": "abcd"[i % 4]} for i, row in enumerate(tickets())]
    path = write(tmp_path / "t.csv", rows)
    assert find_columns(path).label == "category"
    assert find_columns(path, label="team").label == "team"


def test_two_texts_are_a_pair_in_their_order(tmp_path: Path) -> None:
    rows = [
        {"premise": f"number {i} is a long sentence", "hypothesis": f"it is {i} again", "y": i % 3}
        for i in range(30)
    ]
    found = find_columns(write(tmp_path / "pairs.csv", rows))
    assert (found.label, found.texts) == ("y", ("premise", "hypothesis"))
    alone = find_columns(tmp_path / "pairs.csv", texts=["hypothesis"])
    assert alone.texts == ("hypothesis",)


def some(label: Any, text: str = "some text", count: int = 9) -> list[dict[str, Any]]:
    return [{"team": label(i), "text": f"{text} {i}" if text else " "} for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (tickets(), {"label": "squad"}, "label: .* has no column 'squad': its columns are id, te"),
        (tickets(), {"texts": ["body"]}, "text: .* has no column 'body'"),
        (tickets(), {"label": "team", "texts": ["team"]}, "'team' is the label's column"),
        (tickets(), {"label": "message"}, None),
        (some(lambda i: "a"), {"label": "team"}, "one label, 'a'"),
        (some(lambda i: i % 2, text=""), {"label": "team"}, "no column with texts"),
        (some(lambda i: f"a long answer {i}"), {}, "no column of .* looks like labels"),
        (some(lambda i: i, count=300), {"label": "team"}, "too many for labels"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, rows: list[dict[str, Any]], settings: dict[str, Any], message: str | None
) -> None:
    path = write(tmp_path / "bad.csv", rows)
    if message is None:
        assert len(find_columns(path, **settings).labels) == 60
        return
    with pytest.raises(PfesError, match=message) as caught:
        find_columns(path, **settings)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables_are_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)) * 40)
    empty = tmp_path / "empty.csv"
    empty.write_text("team,text\n")
    for path, words in ((binary, "cannot be read"), (empty, "has no rows")):
        done = call("tasks", "new", path)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_words_of_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tokenizer:
        """Cuts at spaces and after eight letters."""

        unk_token_id = None
        known: dict[str, int]

        def __init__(self) -> None:
            self.known = {}

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            pieces = [w[i : i + 8] for w in text.split() for i in range(0, len(w), 8)]
            return {"input_ids": [self.known.setdefault(p, len(self.known)) for p in pieces]}

        def decode(self, ids: list[int]) -> str:
            return " ".join(word for word, token in self.known.items() if token in ids)

    labels = ["film", "office holder", "office", "transportation", "transporter", "---- x"]
    words = label_words(labels, Tokenizer())
    found = {"film": "film", "office": "office", "transportation": "transpor"}
    assert words == found | {"office holder": "holder", "---- x": "x"}


def test_the_file_can_be_loaded_and_searched(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    rows = [{"Ticket Text": row["message"], "Team?": row["team"]} for row in tickets()]
    path = write(tmp_path / "My tickets.csv", rows)
    done = call("tasks", "new", path, "--label", "Team?")
    assert done.returncode == 0, done.stderr
    target = tmp_path / "My tickets.yaml"
    content = yaml.safe_load(target.read_text())
    assert content["name"] == "my-tickets"
    assert content["dataset"] == {
        "file": "My tickets.csv", "columns": {"ticket_text": "Ticket Text"},
    }  # fmt: skip
    assert content["templates"]["causal"] == "Ticket text: {ticket_text}\nTeam:"
    assert set(content["verbalizers"]) == {"billing", "outage"}
    task = load_task(target, shots=4)
    assert task.train[0].fields.keys() == {"ticket_text"}
    again = call("tasks", "new", path, "--label", "Team?")
    assert again.returncode == 2
    assert "exists" in again.stderr


@pytest.mark.parametrize("labels", [["yes", "no"], ["1", "0"], ["a: b", "# c"], ['"', "é"]])
def test_labels_of_every_kind_survive_the_file(tmp_path: Path, labels: list[str]) -> None:
    rows = [{"label": labels[i % 2], "text": f"some text {i}"} for i in range(40)]
    path = tmp_path / "odd.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    target = tmp_path / "tasks/odd.yaml"
    target.parent.mkdir()
    target.write_text(draft_task(path, find_columns(path), target.parent).yaml())
    task = load_task(target, shots=4)
    assert task.spec.labels == tuple(labels)
    assert task.spec.verbalizers == dict(zip(labels, labels, strict=True))


def test_words_come_from_the_models_own_tokens() -> None:
    tokenizer = tiny.make_tokenizer("causal")
    assert label_words(["great", "terrible"], tokenizer) == {
        "great": "great", "terrible": "terrible",
    }  # fmt: skip


def test_rows_without_text_or_label_are_left_out(tmp_path: Path) -> None:
    rows = tickets()
    rows[3]["message"], rows[7]["team"] = " ", ""
    path = write(tmp_path / "tickets.csv", rows)
    done = call("tasks", "new", path)
    assert done.returncode == 0, done.stderr
    assert "2 of 60 rows have no text or no label: left out" in done.stdout
    target = tmp_path / "tickets.yaml"
    assert yaml.safe_load(target.read_text())["dataset"]["skip_empty"] is True
    task = load_task(target, shots="all")
    assert len(task.train) + len(task.validation) + len(task.test) == 58
    target.write_text(target.read_text().replace("skip_empty: true", "skip_empty: false"))
    with pytest.raises(PfesError, match="row 4: empty text"):
        load_task(target, shots="all")


def test_half_a_pair_is_no_example(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"first": f"number {i} is a long sentence", "second": f"it is {i} again", "y": i % 2}
        for i in range(40)
    ]
    rows[5]["second"], rows[6]["first"] = None, float("nan")
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = find_columns(path)
    assert (found.rows, found.empty) == (40, 2)
    target = tmp_path / "pairs.yaml"
    target.write_text(draft_task(path, found, tmp_path).yaml())
    task = load_task(target, shots="all")
    assert len(task.train) + len(task.validation) + len(task.test) == 38


def test_where_every_row_is_left_out_a_name_may_be_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "tickets.csv", tickets())
    target = tmp_path / "tickets.yaml"
    text = draft_task(path, find_columns(path), tmp_path).yaml()
    text = text.replace("label: team", "label: squad")
    target.write_text(text.replace("file: ", "skip_empty: true\n  file: "))
    with pytest.raises(PfesError, match="no row has both .* row 1: no value for 'squad'"):
        load_task(target)


def test_a_label_that_comes_late_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pfes.tasks.columns.SCANNED", 30)
    rows = [*tickets(50), *({"id": i, "team": "sales", "message": f"a {i}"} for i in range(9))]
    found = find_columns(write(tmp_path / "tickets.csv", rows))
    assert found.labels == {"billing": 33, "outage": 17, "sales": 9}
    assert found.rows == 59


def test_a_file_sorted_by_its_label_has_all_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pfes.tasks.columns.SCANNED", 10)
    rows = [{"label": "ab"[i // 20], "text": f"some text of number {i}"} for i in range(40)]
    assert find_columns(write(tmp_path / "t.csv", rows)).labels == {"a": 20, "b": 20}
