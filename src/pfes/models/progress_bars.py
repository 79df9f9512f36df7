"""Progress bars of transformers: for terminals only."""

import sys


def quiet_in_logs() -> None:
    """Switch the bars off where standard error is not a terminal, such as in a log."""
    from transformers.utils.logging import disable_progress_bar

    if not sys.stderr.isatty():
        disable_progress_bar()
