"""Tensors of an optimizer's state as arrays, which is what a checkpoint holds."""

from typing import Any

import torch


def arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return tensors as arrays; dots in names become dashes, as checkpoints nest by dots."""
    return {name.replace(".", "-"): t.detach().cpu().numpy().copy() for name, t in tensors.items()}


def tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return what `arrays` was given."""
    return {name.replace("-", "."): torch.tensor(array) for name, array in arrays.items()}
