"""How much memory is free, and which errors say that there was too little."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from pfes.system.memory import available_memory, is_out_of_memory


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 24 bytes of memory, of which 16 hold files that could be dropped."""
    memory = SimpleNamespace(total=24, free=2, available=18)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_cached_files_count_as_free(device: torch.device | None) -> None:
    assert available_memory(device) == 18


@pytest.mark.usefixtures("machine")
def test_a_gpu_has_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (7, 9))
    device = torch.device("cuda:1")
    assert available_memory(device) == 7
    assert asked == [device]


def test_this_machine_has_some_memory() -> None:
    assert 0 < available_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("memory"), False),
    ],
)
def test_errors_about_memory_are_recognized(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
