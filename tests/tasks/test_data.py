"""Rows from every kind of file, the few-shot split, and what is wrong with data."""

import csv
import json
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from pfes.errors import PfesError
from pfes.tasks import load_task
from pfes.tasks.data import read_file, read_folder

ROWS = [{"text": f'line "{i}", ünïcode 漢字', "label": i % 2} for i in range(50)]
SPEC = """\
name: mine
dataset: {{file: {file}}}
templates: {{causal: "{{text}} ="}}
verbalizers: {{0: "no", 1: "yes"}}
"""


def write(folder: Path, suffix: str, rows: list[dict], name: str = "data") -> Path:
    file = folder / f"{name}{suffix}"
    if suffix == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        with file.open("w", encoding="utf-8", newline="") as sink:
            writer = csv.DictWriter(sink, rows[0], delimiter="\t" if suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return file


SUFFIXES = [".csv", ".tsv", ".jsonl", ".parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    rows = list(read_file(write(tmp_path, suffix, ROWS)))
    assert [row["text"] for row in rows] == [row["text"] for row in ROWS]
    assert [int(row["label"]) for row in rows] == [row["label"] for row in ROWS]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_makes_a_task(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path, suffix, ROWS)
    (tmp_path / "t.yaml").write_text(SPEC.format(file=file.name))
    task = load_task(tmp_path / "t.yaml", shots=4)
    assert Counter(example.label for example in task.train) == {0: 4, 1: 4}
    assert len(task.test) == 10  # a fifth is held out


@pytest.mark.parametrize(
    "labels", [("true", "false"), (True, False), ("1", "0"), (1, 0), (1.0, 0.0)]
)
def test_labels_of_any_type(tmp_path: Path, labels: tuple) -> None:
    rows = [{"text": f"t{i}", "label": labels[i % 2]} for i in range(40)]
    file = write(tmp_path, ".jsonl", rows)
    words = (
        '{true: "yes", false: "no"}' if str(labels[0]).lower() == "true" else '{1: "yes", 0: "no"}'
    )
    (tmp_path / "t.yaml").write_text(
        f'name: t\ndataset: {{file: {file.name}}}\ntemplates: {{causal: "{{text}}"}}\n'
        f"verbalizers: {words}\n"
    )
    task = load_task(tmp_path / "t.yaml", shots=2)
    assert all((int(e.fields["text"][1:]) % 2) == e.label for e in task.train)


def test_bom_and_crlf(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_bytes(b"\xef\xbb\xbftext,label\r\nhello,1\r\n")
    assert list(read_file(file)) == [{"text": "hello", "label": "1"}]


def test_split_is_disjoint_balanced_and_by_seed(task_file: Path) -> None:
    first, again, other = (load_task(task_file, shots=6, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.train != other.train
    assert first.test == other.test  # the held-out part does not depend on the seed
    parts = [
        {e.fields["text"] for e in part} for part in (first.train, first.validation, first.test)
    ]
    assert len(set.union(*parts)) == sum(map(len, parts))
    for part in (first.train, first.validation):
        assert Counter(example.label for example in part) == {0: 6, 1: 6}


def test_test_limit_keeps_the_same_examples_for_every_seed(task_file: Path) -> None:
    whole = load_task(task_file, shots=2)
    some = [load_task(task_file, shots=2, seed=seed, test_limit=5).test for seed in (0, 3)]
    assert some[0] == some[1]
    assert len(some[0]) == 5
    assert {e.fields["text"] for e in some[0]} < {e.fields["text"] for e in whole.test}
    assert load_task(task_file, shots=2, test_limit=10**6).test == whole.test
    other = load_task(task_file, shots=2, test_limit=5, test_seed=1)
    assert other.test != some[0]
    assert other.train == load_task(task_file, shots=2).train


def test_separate_test_file(tmp_path: Path) -> None:
    write(tmp_path, ".csv", ROWS)
    held_out = [row | {"text": f"other {i}"} for i, row in enumerate(ROWS[:7])]
    write(tmp_path, ".jsonl", held_out, name="held-out")
    text = SPEC.format(file="data.csv").replace(
        "}\ntemplates", ", test_file: held-out.jsonl}\ntemplates"
    )
    (tmp_path / "t.yaml").write_text(text)
    task = load_task(tmp_path / "t.yaml", shots=12)
    assert len(task.test) == 7


def glue_folder(folder: Path, suffix: str = ".jsonl") -> Path:
    home = folder / "sst2"
    home.mkdir(parents=True)
    rows = [{"sentence": f"s {i}", "label": i % 2, "idx": i} for i in range(80)]
    write(home, suffix, rows, name="train")
    write(home, suffix, rows[:9], name="validation")
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_data_dir_stands_in_for_the_hub(tmp_path: Path, suffix: str) -> None:
    task = load_task("sst2", data_dir=glue_folder(tmp_path, suffix))
    assert (len(task.train), len(task.validation), len(task.test)) == (32, 32, 9)


def test_data_dir_reads_shards_in_order(tmp_path: Path) -> None:
    for i in (1, 0):
        write(tmp_path, ".parquet", [{"n": i}], name=f"train-0000{i}-of-00002")
    assert [row["n"] for row in read_folder(tmp_path, "train")] == [0, 1]


@pytest.mark.parametrize(
    ("missing", "message"), [("sst2", "does not exist"), ("sst2/train.jsonl", "no 'train' split")]
)
def test_data_dir_without_the_task(tmp_path: Path, missing: str, message: str) -> None:
    glue_folder(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(PfesError, match=message):
        load_task("sst2", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nfine,1\n,0\n", "row 2: empty text"),
        ("text,label\n   ,1\n", "row 1: empty text"),
        ("text,label\nfine,7\n", "label '7' has no verbalizer; those with one are 0, 1"),
        ("words,label\nfine,1\n", "no value for 'text'; its columns are words, label"),
        ("text,stars\nfine,1\n", "no value for 'label'"),
        ("text,label\nfine\n", "no value for 'label'"),
        ("text,label\n" + "good,1\n" * 9, "label '0' has 0 examples"),
        ("text,label\n" + "".join(f"good {i},1\nbad {i},0\n" for i in range(9)), "use 3 shots"),
        ("text,label\n" + "good,1\nbad,0\n" * 9, "14 texts are in the test data, too"),
        ("label,text\n1,good, but long\n", "row 1: more values than columns"),
        ('text,label\n"Good" they said,1\n', "and double every quote inside it"),
        ('text,label\n"Good,1\nbad,0\n', "and double every quote inside it"),
        ("", "no examples"),
    ],
)
def test_wrong_data_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "d.csv").write_text(content)
    (tmp_path / "t.yaml").write_text(SPEC.format(file="d.csv"))
    with pytest.raises(PfesError) as caught:
        load_task(tmp_path / "t.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b'{"text": ', "line 1: not valid JSON"),
        ("d.jsonl", b'{"text": "a", "label": 1}\n[1]\n', "line 2: not a JSON object"),
        ("d.csv", b"text,label\n\xff\xfe,1\n", "cannot be read"),
        ("d.parquet", b"not parquet", "cannot be read"),
        ("d.xlsx", b"", "must end in one of"),
        ("d.csv", None, "does not exist"),
    ],
)
def test_unreadable_files_are_one_line(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / "t.yaml").write_text(SPEC.format(file=name))
    with pytest.raises(PfesError) as caught:
        load_task(tmp_path / "t.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hub_that_cannot_be_reached_is_one_line() -> None:
    with pytest.raises(PfesError, match="--data-dir") as caught:
        load_task("sst2")
    assert "\n" not in str(caught.value)
