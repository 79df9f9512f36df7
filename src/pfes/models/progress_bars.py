"""Progress bars of other libraries: for terminals only."""

import contextlib
import io
import sys
from collections.abc import Iterator


def quiet_in_logs() -> None:
    """Switch the bars of transformers off where standard error is not a terminal."""
    from transformers.utils.logging import disable_progress_bar

    if not sys.stderr.isatty():
        disable_progress_bar()


@contextlib.contextmanager
def bars_in_terminals_only() -> Iterator[None]:
    """Also keep bars out of a log that no setting switches off; errors are raised as ever."""
    quiet_in_logs()
    with contextlib.nullcontext() if sys.stderr.isatty() else _nowhere():
        yield


def _nowhere() -> contextlib.redirect_stderr[io.StringIO]:
    return contextlib.redirect_stderr(io.StringIO())
