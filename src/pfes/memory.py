"""How much memory there is."""

import re
from pathlib import Path
from typing import Any

MEMORY = Path("/proc/meminfo")
UNKNOWN = 4 * 2**30  # bytes to assume where a system does not say


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
