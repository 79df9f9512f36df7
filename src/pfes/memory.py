"""How much memory there is."""

import os
from typing import Any

UNKNOWN = 4 * 2**30  # bytes to assume where a system does not say


def available_memory(device: Any = None) -> int:
    """Return the bytes that are free for use: on a GPU, where a torch device is one."""
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows, macOS
        return UNKNOWN
