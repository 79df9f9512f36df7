"""`pfes predict`: files in and out, rows without text, devices, mistakes."""

import json
from pathlib import Path

import pytest

from pfes.tasks.data import read_file
from tests.cli.conftest import Cli, check_error


def test_predict_from_files_agrees_with_text(cli: Cli, finished: Path, tmp_path: Path) -> None:
    texts = ["a great film", "dull , and long"]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    (tmp_path / "t.csv").write_text('id,text\n1,a great film\n2,"dull , and long"\n')
    shown = [
        cli("predict", finished, "--file", tmp_path / f"t.{kind}")[1]
        for kind in ("txt", "jsonl", "csv")
    ]
    shown.append(cli("predict", finished, *(part for t in texts for part in ("--text", t)))[1])
    assert len(set(shown)) == 1
    assert shown[0].count("\n") == 2


def test_a_row_with_a_null_is_left_without_a_label(
    cli: Cli, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "fine"}\n{"text": null}\n{"text": "dull"}\n')
    (tmp_path / "in.csv").write_text("id,text\n1,fine\n2\n3,dull\n")
    for kind in ("jsonl", "csv"):
        out = tmp_path / f"out.{kind}"
        code, _, errors = cli("predict", finished, "--file", tmp_path / f"in.{kind}", "--out", out)
        assert (code, "1 rows have no text" in errors) == (0, True)
        rows = list(read_file(out))
        assert [bool(row["predicted"]) for row in rows] == [True, False, True]


def test_evaluate_and_predict_elsewhere(cli: Cli, finished: Path) -> None:
    config = json.loads((finished / "config.json").read_text()) | {"device": "cuda:99"}
    (finished / "config.json").write_text(json.dumps(config))
    check_error(cli("evaluate", finished), "--device: cuda:99")
    assert cli("evaluate", finished, "--device", "cpu")[0] == 0
    assert cli("predict", finished, "--text", "fine")[0] == 0
    check_error(cli("predict", finished, "--text", "fine", "--device", "cuda:99"), "cuda:99")


def test_predict_writes_whole_files_or_none(cli: Cli, finished: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("text\na great film\ndull\n")
    for content, words in [
        ("text\n" + "fine\n" * 70 + "too,many,values\n", "row 71: more values than columns"),
        ("text,predicted\nfine,x\n", "has a column 'predicted'"),
    ]:
        bad = tmp_path / "bad.csv"
        bad.write_text(content)
        check_error(cli("predict", finished, "--file", bad, "--out", target), words)
        assert not list(tmp_path.glob("out.csv*"))
    check_error(cli("predict", finished, "--file", source, "--out", source), "that is read")
    uneven = tmp_path / "in.jsonl"
    uneven.write_text('{"text": "a"}\n{"text": "b", "more": 1}\n')
    check_error(cli("predict", finished, "--file", uneven, "--out", target), "row 2")
    assert cli("predict", finished, "--file", source, "--out", target)[0] == 0
    lines = target.read_text().splitlines()
    assert lines[0] == "text,predicted,p_bad,p_good"
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --text or --file"),
        (["--text", "a", "--file", "b.csv"], "either --text or --file"),
        (["--text", "  "], "empty text"),
        (["--file", "nowhere.csv"], "does not exist"),
        (["--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_predict_errors(cli: Cli, finished: Path, arguments: list[str], message: str) -> None:
    check_error(cli("predict", finished, *arguments), message)


@pytest.mark.parametrize("option", ["--tokenizer", "--served-name"])
def test_options_of_a_served_model_are_refused_for_a_local_one(
    cli: Cli, finished: Path, option: str
) -> None:
    outcome = cli("predict", finished, "--text", "fine", option, "some")
    check_error(outcome, f"{option}: this is for a served model")
