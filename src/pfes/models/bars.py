"""Progress bars of transformers: for terminals only."""

import sys


def quiet_in_logs() -> None:
    """Switch the bars off where standard error is not a terminal: a log has no use for them."""
    from transformers.utils.logging import disable_progress_bar

    if not sys.stderr.isatty():
        disable_progress_bar()
