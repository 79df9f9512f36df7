"""How much memory there is."""

import os


def available_memory() -> int:
    """Return the bytes of memory that are free for use."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
