"""The one kind of error a user can cause."""


class PfesError(Exception):
    """Something the user can mend: one line that says what, where and what to do.

    The command line prints it and exits with code 2; it never shows a traceback.
    """
