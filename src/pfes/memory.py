"""How much memory there is, and whether there was too little."""

import re
from pathlib import Path
from typing import Any

MEMORY = Path("/proc/meminfo")
UNKNOWN = 4 * 2**30  # bytes to assume where a system does not say
EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory")  # as torch says it


def available_memory(device: Any = None) -> int:
    """Return the bytes that are free for use: on a GPU, where a torch device is one.

    What Linux keeps of files it has read counts as free: it is given up when needed.
    """
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", MEMORY.read_text())
    except OSError:  # Windows, macOS
        found = None
    return UNKNOWN if found is None else int(found[1]) * 1024


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error is about memory: Python's, torch's on a GPU, or torch's on a CPU."""
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in EXHAUSTED)
