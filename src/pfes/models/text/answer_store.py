"""Answers of paid services, kept on disk by the hash of their request."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from pfes.errors import PfesError
from pfes.system.downloads import cache_dir
from pfes.system.files import make_folder

LARGEST = "PFES_ANSWERS_MB"  # the environment variable with the size that the file may have
MEGABYTES = 1000  # where that is not set
LOOK_EVERY = 1000  # answers between two looks at the size
PART = 5  # one in so many answers goes when there are too many, the oldest first


class AnswerStore:
    """One file for all runs; several threads and processes may use it at once.

    It holds hashes of requests and what was answered: neither texts nor keys.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or answers_file()
        make_folder(self.path.parent)
        self._lock = threading.Lock()
        self._added = 0
        with self._problems():
            self._file = sqlite3.connect(
                self.path, timeout=60, check_same_thread=False, isolation_level=None
            )
            self._file.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS answers "
                "(number INTEGER PRIMARY KEY, request BLOB UNIQUE, answer TEXT)"
            )
            self._bound()

    def get(self, request: Any) -> Any:
        """Return what was answered to a request, or None."""
        with self._lock, self._problems():
            found = self._file.execute(
                "SELECT answer FROM answers WHERE request = ?", [_hash(request)]
            ).fetchone()
        return None if found is None else json.loads(found[0])

    def put(self, request: Any, answer: Any) -> None:
        """Keep an answer; it is on disk when this returns."""
        row = [_hash(request), json.dumps(answer)]
        with self._lock, self._problems():
            self._file.execute("REPLACE INTO answers (request, answer) VALUES (?, ?)", row)
            self._added += 1
            if self._added % LOOK_EVERY == 0:
                self._bound()

    @property
    def count(self) -> int:
        """How many answers there are."""
        with self._lock, self._problems():
            return int(self._file.execute("SELECT COUNT(*) FROM answers").fetchone()[0])

    @property
    def bytes(self) -> int:
        """How large the file is."""
        with self._lock, self._problems():
            return self._size()

    def clear(self) -> None:
        """Forget all answers."""
        with self._lock, self._problems():
            self._file.execute("DELETE FROM answers")
            self._file.execute("VACUUM")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _size(self) -> int:
        pages, size, free = (
            int(self._file.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "page_size", "freelist_count")
        )
        return (pages - free) * size

    def _bound(self) -> None:
        if self._size() <= largest_bytes():
            return
        self._file.execute(
            "DELETE FROM answers WHERE number IN (SELECT number FROM answers ORDER BY number "
            "LIMIT (SELECT COUNT(*) / ? + 1 FROM answers))",
            [PART],
        )
        self._file.execute("PRAGMA incremental_vacuum")

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise PfesError(
                f"{self.path} cannot be used ({error}): remove it, or set PFES_CACHE to another "
                "folder"
            ) from None


def answers_file() -> Path:
    """Return where answers are kept."""
    return cache_dir() / "answers.sqlite"


def largest_bytes() -> int:
    """Return how large the file may become, about."""
    given = os.environ.get(LARGEST, "")
    return int(float(given or MEGABYTES) * 1e6)


def _hash(request: Any) -> bytes:
    return sha256(json.dumps(request, sort_keys=True).encode()).digest()
