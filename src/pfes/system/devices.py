"""The devices that torch finds here: which one to use, how many GPUs there are, what they are."""

import os
from typing import Any

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # the variable by which a process is told its GPUs


def default_device() -> str:
    """Return the first GPU, Apple's if there is one, else the CPU."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def visible_gpus() -> list[str]:
    """Return the names by which another process can be told each GPU that this one may use."""
    import torch

    if default_device() == "mps":
        return ["mps"]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [name.strip() for name in os.environ.get(VISIBLE_GPUS, "").split(",")]
    # torch counts the names up to the first that it does not know
    return named[:count] if named != [""] else [str(number) for number in range(count)]


def device_name(device: Any) -> str:
    """Return a torch device's kind: a GPU's model and memory, else its type."""
    if device.type != "cuda":
        return str(device)
    import torch

    gpu = torch.cuda.get_device_properties(device)
    return f"{gpu.name} {gpu.total_memory / 2**30:.0f} GB"


def give_back_memory() -> None:
    """Give back what torch keeps of a GPU's memory for later, after it did not suffice."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
