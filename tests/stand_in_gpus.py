"""GPUs that are only counted: what torch says of a machine that has some."""

from types import SimpleNamespace

import pytest
import torch


def give_gpus(monkeypatch: pytest.MonkeyPatch, count: int, visible: str | None = None) -> None:
    """Let torch count so many GPUs of NVIDIA's; `visible` is CUDA_VISIBLE_DEVICES."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    properties = SimpleNamespace(name="NVIDIA Stand-in", total_memory=24 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def give_apples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch find Apple's GPU."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
