"""How much memory there is, and whether there was too little."""

from typing import Any

EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory")  # torch's messages


def available_memory(device: Any = None) -> int:
    """Return the bytes that are free for use: of a GPU, where a torch device is one.

    What the system keeps of files it has read counts as free: it is given up when needed.
    """
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return int(psutil.virtual_memory().available)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error is about memory: Python's, torch's on a GPU, or torch's on a CPU."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in message for phrase in EXHAUSTED)
