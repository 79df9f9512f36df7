"""Files that cannot become a task, through the command line: one line each, with what to do."""

import io
import random
import zipfile
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, check_error

ROWS = [("my invoice is wrong", "billing"), ("the site is down", "outage")] * 20


def table(separator: str = ",", rows: list[tuple[str, str]] = ROWS, header: str = "label") -> bytes:
    lines = [("text", header), *((f"{text} {i}", label) for i, (text, label) in enumerate(rows))]
    return "\n".join(separator.join(line) for line in lines).encode()


def archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table(rows=[(f"a text {i}", f"one of a kind {i}") for i in range(30)], header="note"),
         "--label: no column of"),
        (table(rows=[("a text", "same")] * 9), "'label' has one label, 'same': at least two"),
        (b"text,label\n" + b" ,a\n ,b\n" * 9, "no column with texts beside the label's: fill one"),
        (b"", "has no rows: it needs a line with the names of the columns"),
        (b"text,label\n", "has no rows: it needs a line with the names of the columns"),
        (random.Random(0).randbytes(5000), "it is no text in UTF-8"),
        (bytes(range(32)) * 9, "it is no text; if a program can open it, save it as CSV"),
        (archive(), "it is a spreadsheet or an archive; open it and save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08" + bytes(50), "it is compressed; unpack it first"),
        (table().decode().encode("utf-16"), "it is text in UTF-16; save it as UTF-8"),
        (table().decode().encode("utf-16-le"), "it is text in UTF-16; save it as UTF-8"),
        (table().decode().encode("utf-16-be"), "it is text in UTF-16; save it as UTF-8"),
        ("text,label\ncafé,a\n".encode("latin-1"), "it is no text in UTF-8; if it is text, save"),
        (table(";"), "its columns seem to be separated by ';': save it with commas"),
        (table(";", [("yes, it is", "a"), ("no, it is not", "b")]), "separated by ';'"),
        (b'"text";"label"\n"one; two";"a"\n', "separated by ';'"),
        (table("\t"), "separated by tabs: let the file's name end in .tsv"),
    ],
    ids=range(17),
)  # fmt: skip
def test_a_file_that_is_no_task(cli: Cli, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(content)
    check_error(cli("tasks", "new", file), message)
    assert not (tmp_path / "data.yaml").exists()
    check_error(cli("fit", file, "--out", tmp_path / "run"), message)
    assert not (tmp_path / "run").exists()


def test_a_label_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(table())
    message = "has no column 'team': its columns are text, label"
    check_error(cli("tasks", "new", file, "--label", "team"), message)


def test_texts_that_are_all_empty(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("text,label\n" + ",a\n,b\n" * 9)
    message = "none of its 18 rows has both a text and a label"
    check_error(cli("tasks", "new", file, "--label", "label", "--text", "text"), message)


@pytest.mark.parametrize("name", ["data.xlsx", "data.XLS", "data.ods"])
def test_a_spreadsheet(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(archive())
    check_error(cli("tasks", "new", tmp_path / name), "save it as CSV in UTF-8")


def test_more_rows_than_are_needed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pfes.tasks.columns.MOST_ROWS", 39)
    file = tmp_path / "data.csv"
    file.write_bytes(table())
    message = "has more than 39 rows: take a part of it; a few hundred rows of each label"
    check_error(cli("tasks", "new", file), message)
    monkeypatch.setattr("pfes.tasks.columns.MOST_ROWS", 40)
    assert cli("tasks", "new", file)[0] == 0
