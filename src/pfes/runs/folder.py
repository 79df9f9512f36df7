"""Writing a run folder, so that a crash never leaves half a file. `SavedRun` reads it."""

import contextlib
import errno
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

from pfes.config import WRITTEN_BY, RunConfig
from pfes.contract import Floats
from pfes.errors import PfesError, SettingError
from pfes.runs.checkpoint import checkpoint_bytes, read_checkpoint
from pfes.runs.result import Result
from pfes.runs.run_files import RunFiles
from pfes.searches.reading import PLAIN, READING, Reading
from pfes.system.files import DRAFT, json_line, replace_file, replace_json
from pfes.system.tensors import Arrays, pack
from pfes.tasks.task import Task

LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of a file system that has none

log = logging.getLogger(__name__)


class HistoryMark(NamedTuple):
    """How much of a history belongs to a state of its search."""

    size: int = 0  # in bytes
    checksum: int = 0  # of these bytes


class RunFolder:
    """Writes the files of a run; one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = RunFiles(path)
        self._mark = HistoryMark()

    @property
    def begun(self) -> bool:
        """Whether a run was begun here: there is a config to go on with."""
        return self.files.config.exists()

    def create(self) -> None:
        """Make the folder, which must be empty or not exist."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # a draft is what a kill in the middle of a write leaves; it holds nothing
            ours = {LOCK, self.files.task_file.name, self.files.choices.name}
            if not self.begun:  # a kill before a start
                ours |= {self.files.task.name, self.files.start.name}
            occupied = any(
                entry.suffix != DRAFT and entry.name not in ours for entry in self.path.iterdir()
            )
        except OSError as error:
            raise SettingError("out", f"{self.path}: {error.strerror}") from None
        if occupied:
            raise SettingError(
                "out",
                f"{self.path} is not empty: continue its run with --resume, or choose another "
                "folder",
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; the system itself ends this when the process ends."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            message = f"{self.path} is in use by another process: wait until it ends"
            raise SettingError("out", f"{message}, or choose another folder") from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in NO_LOCKS:
                raise SettingError("out", f"{self.path}: {error.strerror}") from None
            log.warning("%s: no locks there; use it from one process only", self.path)
        try:
            yield
        finally:
            lock.release()
            if self.path.is_dir() and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink(missing_ok=True)  # nothing was begun

    def begin(self, config: RunConfig, task: Task) -> None:
        """Store what a run is a function of: its config, and its task with all examples."""
        if not self.begun:
            replace_json(self.files.task, task.to_json())
        replace_json(self.files.config, {WRITTEN_BY: version("pfes")} | config.model_dump())

    def write_start(self, record: dict[str, Any]) -> None:
        """Store what was settled before the search."""
        replace_json(self.files.start, record)

    def append_history(self, line: dict[str, Any]) -> HistoryMark:
        """Add one step to the history; return what a state after it is stored with."""
        content = json_line(line)
        with self._history() as file:
            file.write(content)
        size, checksum = self._mark
        self._mark = HistoryMark(size + len(content), zlib.crc32(content, checksum))
        return self._mark

    def save_checkpoint(self, state: dict[str, Any], mark: HistoryMark | None = None) -> None:
        """Store a search's state; the checkpoint before stays, in case this one is damaged.

        `mark` is the history's at that state, by default all of it.
        """
        size, checksum = mark or self._mark
        if size:
            with self._history() as file:
                os.fsync(file.fileno())  # what a checkpoint needs is on disk before it
        content = checkpoint_bytes(state, size, checksum)
        replace_file(self.files.checkpoint, content, keep=self.files.previous_checkpoint)

    @contextlib.contextmanager
    def _history(self) -> Iterator[IO[bytes]]:
        """Open the history to add to it."""
        try:
            with self.files.history.open("ab") as file:
                yield file
        except OSError as error:
            raise PfesError(f"{self.files.history} cannot be written: {error.strerror}") from None

    def rewind(self) -> dict[str, Any] | None:
        """Go back to the last sound checkpoint: return its state and drop any history beyond it.

        None if there is no checkpoint yet; then no history counts.
        """
        checkpoint = read_checkpoint(self.files)
        if checkpoint is not None and checkpoint.path != self.files.checkpoint:
            # so that the next checkpoint does not push out the only sound one
            checkpoint.path.replace(self.files.checkpoint)
        self._mark = HistoryMark()
        if checkpoint is not None:
            self._mark = HistoryMark(checkpoint.history_bytes, checkpoint.history_checksum)
        if self.files.history.exists():
            os.truncate(self.files.history, self._mark.size)
        return checkpoint.state if checkpoint else None

    def write_prompt(
        self,
        prompt: Floats,
        about: dict[str, Any],
        reading: Reading = PLAIN,
        labels: Sequence[int] = (),
    ) -> None:
        """Store a prompt `(length, width)` with what is needed to use it.

        `labels` are the tokens of the labels' words, which a reading other than plain begins with.
        """
        arrays: Arrays = {"prompt": prompt}
        if reading is not PLAIN:
            about = about | {"reading": reading.rung}
            arrays |= {READING + name: a for name, a in reading.to_arrays(labels).items()}
        replace_file(self.files.prompt, pack(arrays, about))

    def write_answers(self, answers: Iterable[dict[str, Any]]) -> None:
        """Store what was answered to each test example, a line each."""
        replace_file(self.files.answers, b"".join(map(json_line, answers)))

    def write_result(self, result: Result) -> None:
        """Store the result; a run that has one has ended."""
        replace_json(self.files.result, result.model_dump(mode="json"))
