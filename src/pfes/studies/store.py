"""Stores for the runs of a study: a folder, or any address that fsspec knows, such as s3://…"""

import shutil
import tempfile
import time
from pathlib import Path

from pfes.errors import PfesError, SettingError, one_line
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run_files import RunFiles
from pfes.runs.saved import SavedRun
from pfes.system.files import DRAFT, make_folder

UPLOAD_EVERY = 30.0  # seconds between two uploads of a run in progress


class FolderStore:
    """Runs in a local folder, or in one that all nodes share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Return whether the store exists."""
        return self.path.is_dir()

    def finished(self, name: str) -> bool:
        """Return whether a run is finished."""
        return RunFiles(self.path / name).result.exists()

    def result(self, name: str) -> Result | None:
        """Return the result of a run, or None if it is not finished."""
        saved = SavedRun(self.path / name)
        return saved.result if saved.finished else None

    def saved(self, name: str) -> SavedRun:
        """Return a run of which at least the result and the history can be read."""
        return SavedRun(self.path / name)

    def open(self, name: str) -> RunFolder:
        """Return a local run folder to work in, with all files stored so far."""
        folder = RunFolder(self.path / name)
        make_folder(folder.path)
        return folder

    def keep(self, folder: RunFolder, now: bool = False) -> None:
        """Store what a run has written: at intervals, or at once and finally if `now`."""

    def keep_report(self, files: list[Path]) -> list[str]:
        """Store the files of a report; return their paths or addresses."""
        return [str(path) for path in files]

    def report(self, name: str) -> Path:
        """Return a local folder to write a report to."""
        return self.path / f"report-{name}"


class RemoteStore(FolderStore):
    """Runs in an object store: done in a temporary local folder, and uploaded at intervals.

    A file is uploaded under another name and then renamed, so that it is always complete. The
    history goes before the checkpoint, which says how much of it counts, and the result goes last.
    An interrupted run repeats what it did since the last upload, with the same result.
    """

    def __init__(self, address: str) -> None:
        import fsspec

        try:
            self._remote, self._root = fsspec.url_to_fs(address)
        except (
            Exception
        ) as error:  # the type depends on the storage's package, which may be missing
            raise self._failed(address, error) from None
        self._address = address.rstrip("/")
        self._local = tempfile.TemporaryDirectory(prefix="pfes-")
        self._uploaded: dict[Path, float] = {}  # when each run folder was last uploaded
        super().__init__(Path(self._local.name))

    def exists(self) -> bool:
        try:
            return bool(self._remote.exists(self._root))
        except Exception as error:
            raise self._failed(self._address, error) from None

    def finished(self, name: str) -> bool:
        self._fetch(name, [RunFiles(name).result.name])
        return super().finished(name)

    def result(self, name: str) -> Result | None:
        self._fetch(name, [RunFiles(name).result.name])
        return super().result(name)

    def saved(self, name: str) -> SavedRun:
        files = RunFiles(name)
        self._fetch(name, [files.result.name, files.history.name])
        return super().saved(name)

    def open(self, name: str) -> RunFolder:
        folder = super().open(name)
        self._fetch(name, [path.name for path in folder.files.in_order])
        return folder

    def keep(self, folder: RunFolder, now: bool = False) -> None:
        if (
            not now
            and time.monotonic() - self._uploaded.setdefault(folder.path, time.monotonic())
            < UPLOAD_EVERY
        ):
            return
        for path in folder.files.in_order:
            if path.exists():
                self._put(path, f"{self._root}/{folder.path.name}")
        self._uploaded[folder.path] = time.monotonic()
        if now:
            shutil.rmtree(folder.path, ignore_errors=True)

    def keep_report(self, files: list[Path]) -> list[str]:
        for path in files:
            self._put(path, f"{self._root}/{path.parent.name}")
        return [f"{self._address}/{path.parent.name}/{path.name}" for path in files]

    def _fetch(self, name: str, files: list[str]) -> None:
        (self.path / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            address = f"{self._root}/{name}/{file}"
            try:
                if self._remote.exists(address):
                    self._remote.get_file(address, str(self.path / name / file))
            except Exception as error:
                raise self._failed(address, error) from None

    def _put(self, path: Path, remote_folder: str) -> None:
        address = f"{remote_folder}/{path.name}"
        try:
            self._remote.makedirs(remote_folder, exist_ok=True)
            self._remote.put_file(str(path), address + DRAFT)
            self._remote.mv(address + DRAFT, address)
        except Exception as error:
            raise self._failed(address, error) from None

    @staticmethod
    def _failed(address: str, error: Exception) -> PfesError:
        return SettingError("out", f"{address}: {type(error).__name__}: {one_line(error, 200)}")


def open_store(out: str | Path) -> FolderStore:
    """Return the store of a folder or an address."""
    return RemoteStore(str(out)) if "://" in str(out) else FolderStore(Path(out))


def whole_address(out: str | Path) -> str:
    """Return a folder as an absolute path, for other processes; an address as it is."""
    return str(out) if "://" in str(out) else str(Path(out).absolute())
