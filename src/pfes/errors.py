"""The one kind of error that a user can cause and mend."""


class PfesError(Exception):
    """A problem that its message explains: what is wrong, where, and what to do.

    The command line prints it and exits with code 2; it never shows a traceback. The message is
    one line whatever is quoted in it, and has nothing that a terminal would obey.
    """

    def __init__(self, message: object) -> None:
        super().__init__("".join(c if c.isprintable() else " " for c in str(message)))
