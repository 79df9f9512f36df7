"""Errors that a user can cause and mend: one line that says what is wrong and what to do."""

from typing import Any


def printable(text: object) -> str:
    """Return a text as one line, without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return an error's message without line breaks, cut to `limit` characters."""
    return " ".join(str(error).split())[:limit]


class PfesError(ValueError):
    """A problem that its message explains: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2; it never shows a traceback. The
    message is always one line, whatever is quoted in it.
    """

    def __init__(self, message: object) -> None:
        super().__init__(printable(message))

    @property
    def for_command_line(self) -> str:
        """The message as the command line prints it."""
        return str(self)


class SettingError(PfesError):
    """A setting that is wrong: named as in Python, or as an option on the command line."""

    def __init__(self, setting: str, message: object) -> None:
        super().__init__(f"{setting}: {message}")
        self.setting = setting
        self.message = printable(message)

    @property
    def for_command_line(self) -> str:
        return f"--{self.setting.replace('_', '-')}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.setting, self.message)  # errors travel between processes


class OutOfMemoryError(PfesError):
    """There was too little memory for a forward pass of a model."""
