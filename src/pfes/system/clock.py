"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Adds up seconds by part: model, optimizer, validation, testing, loading, data, disk."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Count what happens inside to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Count seconds to a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
