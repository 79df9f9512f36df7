"""Where the runs of a study are: a folder, or any address that fsspec knows, such as s3://…"""

import shutil
import tempfile
import time
from pathlib import Path

from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.result import Result
from pfes.run import read_result

EVERY = 30.0  # seconds between two copies of a run that is going on


class FolderStore:
    """Runs in a folder here, or one that all nodes share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Say whether there is anything."""
        return self.path.is_dir()

    def result(self, name: str) -> Result | None:
        """Return the figures of a run, if it has ended."""
        return read_result(RunFolder(self.path / name))

    def history(self, name: str) -> RunFolder:
        """Return a run's folder with at least its result and its history in it."""
        return RunFolder(self.path / name)

    def open(self, name: str) -> RunFolder:
        """Return a run's folder to work in, with all that is there of it."""
        folder = RunFolder(self.path / name)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PfesError(f"--out {self.path}: {error.strerror}") from None
        return folder

    def keep(self, folder: RunFolder, now: bool = False) -> None:
        """Store what a run has written: soon, or `now`."""

    def keep_report(self, files: list[Path]) -> list[str]:
        """Store the files of a report; return where they are."""
        return [str(path) for path in files]

    def report(self, name: str) -> Path:
        """Return a folder to write a report to."""
        return self.path / f"report-{name}"


class RemoteStore(FolderStore):
    """Runs in an object store: worked on in a folder here, copied there again and again.

    A file is put beside its place and then moved, so that it is always whole. The history goes
    before the checkpoint, which says how much of it counts, and the result last. A run that is cut
    off loses what it did since the last copy, and gives the same result.
    """

    def __init__(self, address: str) -> None:
        import fsspec

        try:
            self._files, self._root = fsspec.url_to_fs(address)
        except Exception as error:  # whatever the storage's package raises, or that it is missing
            raise self._failed(address, error) from None
        self._address = address.rstrip("/")
        self._here = tempfile.TemporaryDirectory(prefix="pfes-")
        self._kept: dict[Path, float] = {}
        super().__init__(Path(self._here.name))

    def exists(self) -> bool:
        try:
            return bool(self._files.exists(self._root))
        except Exception as error:
            raise self._failed(self._address, error) from None

    def result(self, name: str) -> Result | None:
        self._fetch(name, [RunFolder(name).result.name])
        return super().result(name)

    def history(self, name: str) -> RunFolder:
        folder = RunFolder(self.path / name)
        self._fetch(name, [folder.result.name, folder.history.name])
        return folder

    def open(self, name: str) -> RunFolder:
        folder = super().open(name)
        self._fetch(name, [path.name for path in folder.files])
        return folder

    def keep(self, folder: RunFolder, now: bool = False) -> None:
        if (
            not now
            and time.monotonic() - self._kept.setdefault(folder.path, time.monotonic()) < EVERY
        ):
            return
        for path in folder.files:
            if path.exists():
                self._put(path, f"{self._root}/{folder.path.name}")
        self._kept[folder.path] = time.monotonic()
        if now:
            shutil.rmtree(folder.path, ignore_errors=True)

    def keep_report(self, files: list[Path]) -> list[str]:
        for path in files:
            self._put(path, f"{self._root}/{path.parent.name}")
        return [f"{self._address}/{path.parent.name}/{path.name}" for path in files]

    def _fetch(self, name: str, files: list[str]) -> None:
        (self.path / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            place = f"{self._root}/{name}/{file}"
            try:
                if self._files.exists(place):
                    self._files.get_file(place, str(self.path / name / file))
            except Exception as error:
                raise self._failed(place, error) from None

    def _put(self, path: Path, there: str) -> None:
        place = f"{there}/{path.name}"
        try:
            self._files.makedirs(there, exist_ok=True)
            self._files.put_file(str(path), f"{place}.tmp")
            self._files.mv(f"{place}.tmp", place)
        except Exception as error:
            raise self._failed(place, error) from None

    @staticmethod
    def _failed(place: str, error: Exception) -> PfesError:
        words = " ".join(str(error).split())[:200]
        return PfesError(f"--out {place}: {type(error).__name__}: {words}")


def open_store(out: str | Path) -> FolderStore:
    """Return the store at a folder or at an address."""
    return RemoteStore(str(out)) if "://" in str(out) else FolderStore(Path(out))


def whole_address(out: str | Path) -> str:
    """Return a folder in full, so that another process finds it; an address as it is."""
    return str(out) if "://" in str(out) else str(Path(out).absolute())
