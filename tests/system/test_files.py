"""Files are whole or not there: after a crash, with several writers, with odd values."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from pfes.errors import PfesError
from pfes.system.files import (
    create_once,
    finite,
    json_line,
    make_folder,
    read_json,
    read_json_lines,
    replace_file,
    replace_json,
    replacing,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_replacing_writes_a_new_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()  # not before it is complete
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_replacing_takes_the_place_of_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_replacing_opens_the_file_as_asked(tmp_path: Path) -> None:
    with replacing(tmp_path / "a", mode="w", encoding="utf-8", newline="") as file:
        file.write("ü\r\n")
    assert (tmp_path / "a").read_bytes() == "ü\r\n".encode()


@pytest.mark.parametrize("error", [RuntimeError("crash"), KeyboardInterrupt()])
@pytest.mark.parametrize("keep", [None, "before"])
def test_a_crash_while_writing_leaves_the_old_file_and_no_draft(
    tmp_path: Path, error: BaseException, keep: str | None
) -> None:
    def write_half() -> None:
        with replacing(tmp_path / "a", keep and tmp_path / keep) as file:
            file.write(b"half")
            raise error

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(type(error)):
        write_half()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_crash_before_the_first_file_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), replacing(tmp_path / "a"):
        raise RuntimeError("crash")
    assert names(tmp_path) == []


def test_a_draft_left_by_a_kill_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.tmp").write_bytes(b"what a killed process left, and longer than the new content")
    replace_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_keep_moves_the_old_file(tmp_path: Path) -> None:
    path, before = tmp_path / "a", tmp_path / "before"
    replace_file(path, b"first", keep=before)
    assert names(tmp_path) == ["a"]  # there was nothing to keep
    replace_file(path, b"second", keep=before)
    assert (path.read_bytes(), before.read_bytes()) == (b"second", b"first")
    replace_file(path, b"third", keep=before)
    assert (path.read_bytes(), before.read_bytes()) == (b"third", b"second")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PfesError, match="nowhere/a cannot be written: No such file") as caught:
        replace_file(tmp_path / "nowhere" / "a", b"")
    assert "\n" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(PfesError, match="folder cannot be written"):
        replace_file(tmp_path / "folder", b"")
    assert names(tmp_path) == ["folder"]
    (tmp_path / "file").touch()
    with pytest.raises(PfesError, match="file/folder cannot be made"):
        make_folder(tmp_path / "file" / "folder")


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")  # it may be there already
    assert (tmp_path / "a" / "b").is_dir()


def test_create_once_makes_a_file_or_a_folder(tmp_path: Path) -> None:
    def make_whole_folder(draft: Path) -> None:
        draft.mkdir()
        (draft / "inside").touch()

    create_once(tmp_path / "deep" / "file", lambda draft: draft.write_bytes(b"content"))
    create_once(tmp_path / "deep" / "folder", make_whole_folder)
    assert (tmp_path / "deep" / "file").read_bytes() == b"content"
    assert names(tmp_path / "deep") == ["file", "folder"]
    assert names(tmp_path / "deep" / "folder") == ["inside"]


def test_create_once_leaves_nothing_of_a_failure(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        draft.write_bytes(b"half")
        raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        create_once(tmp_path / "a", fail)
    assert names(tmp_path) == []


def test_the_first_of_several_writers_wins(tmp_path: Path) -> None:
    """Folders: of two that are complete, the second does not replace the first."""
    everyone = threading.Barrier(4)

    def make(draft: Path) -> None:
        draft.mkdir()
        (draft / threading.current_thread().name).touch()
        everyone.wait(timeout=60)

    threads = [
        threading.Thread(target=create_once, args=(tmp_path / "a", make), name=str(number))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["a"]
    assert len(names(tmp_path / "a")) == 1


def test_json_is_read_back(tmp_path: Path) -> None:
    content = {"a": 1, "ü": [1.5, None], "b": {"c": "d"}}
    replace_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert (tmp_path / "a.json").read_bytes().endswith(b"}\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{ damaged", "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[1, 2]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
    ],
)
def test_a_damaged_json_file_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(PfesError, match=f"a.json {message}") as caught:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


def test_a_missing_json_file_is_left_to_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "a.json")
    with pytest.raises(PfesError, match="cannot be read"):
        read_json(tmp_path)  # a folder


def test_json_lines_are_read_back(tmp_path: Path) -> None:
    lines = [{"a": 1}, {"b": "two\nlines, ünïcode \u2028"}]
    (tmp_path / "a.jsonl").write_bytes(b"".join(map(json_line, lines)))
    assert read_json_lines(tmp_path / "a.jsonl") == lines
    assert read_json_lines(tmp_path / "nothing.jsonl") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"b\n', "cannot be read"),
        (b'{"a": 1}\n[2]\n', "a line is not a JSON object"),
    ],
)
def test_damaged_json_lines_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(PfesError, match=message) as caught:
        read_json_lines(tmp_path / "a.jsonl")
    assert "\n" not in str(caught.value)


def test_a_last_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n{"b')
    assert read_json_lines(tmp_path / "a.jsonl") == [{"a": 1}]


def test_a_json_line_is_one_line() -> None:
    line = json_line({"text": "two\nlines, ü", "loss": math.nan})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert "ü".encode() in line
    assert json.loads(line) == {"text": "two\nlines, ü", "loss": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (3, 3),
        (True, True),
        ("nan", "nan"),
        (None, None),
        ((1.0, math.inf), [1.0, None]),
        ({"a": [math.nan, {"b": (math.nan, 2)}]}, {"a": [None, {"b": [None, 2]}]}),
    ],
)
def test_what_is_not_finite_becomes_null(value: Any, expected: Any) -> None:
    assert finite(value) == expected
    json.dumps(finite(value), allow_nan=False)
