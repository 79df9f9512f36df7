"""A command line, called in this process: a process of its own takes seconds to begin."""

import contextlib
import io
import signal
import subprocess
import sys
from unittest import mock

from pfes.cli import main


def hear_ctrl_c() -> None:
    """Let a child process hear Ctrl-C, also where whoever started the tests does not.

    A shell starts jobs in the background with SIGINT ignored, and children inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def call(*arguments: object) -> subprocess.CompletedProcess:
    """Run a command line as a shell would; return exit code, output and error output."""
    words = ["pfes", *map(str, arguments)]
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())
