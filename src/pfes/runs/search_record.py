"""When a search's state is written: at intervals, and whenever the search ends or is stopped."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from pfes.errors import PfesError
from pfes.runs.folder import HistoryMark, RunFolder


class SearchRecord:
    """The steps of a search, written to its folder at once, and its latest state, kept in memory.

    A checkpoint costs more than a step of a fast model. So the state is written when `seconds` have
    passed since the last time. The history may run ahead of it: a resume goes back to where the
    checkpoint is and takes the same steps again.
    """

    def __init__(self, folder: RunFolder, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._written = time.monotonic()
        # state and mark are replaced together, so that Ctrl-C never finds two that do not fit
        self._latest: tuple[dict[str, Any], HistoryMark] | None = None

    def add(self, step: dict[str, Any], state: dict[str, Any], save: bool = False) -> None:
        """Take a step and the state after it, which nothing may change from now on.

        With `save`, the state is written at once.
        """
        self._latest = (state, self._folder.append_history(step))
        if save or time.monotonic() - self._written >= self._seconds:
            self.save()

    def save(self) -> None:
        """Write the latest state, if that has not been done."""
        if self._latest is not None:
            self._folder.save_checkpoint(*self._latest)
            self._latest = None
            self._written = time.monotonic()


@contextlib.contextmanager
def recorded(folder: RunFolder, seconds: float) -> Iterator[SearchRecord]:
    """Record a search; however it ends, by Ctrl-C or an error too, its latest state is written.

    Only a kill loses steps: at most those of the last `seconds`, and the one it was in.
    """
    record = SearchRecord(folder, seconds)
    try:
        yield record
    except BaseException:
        with contextlib.suppress(PfesError):  # what ended the search is what has to be said
            record.save()
        raise
    record.save()
