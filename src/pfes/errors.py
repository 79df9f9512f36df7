"""The one kind of error that a user can cause and mend."""


def printable(text: object) -> str:
    """Return a text as one line, without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


class PfesError(Exception):
    """A problem that its message explains: what is wrong, where, and what to do.

    The command line prints it and exits with code 2; it never shows a traceback. The message is
    one line whatever is quoted in it, and has nothing that a terminal would obey.
    """

    def __init__(self, message: object) -> None:
        super().__init__(printable(message))


class OutOfMemoryError(PfesError):
    """There was too little memory for a pass of a model."""
