"""Which device is used, and what GPUs there are; by stand-ins, as torch counts them."""

import pytest
import torch

from pfes.system.devices import default_device, device_name, visible_gpus
from tests.stand_in_gpus import give_apples, give_gpus


def test_a_machine_without_gpus_uses_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 0)
    assert default_device() == "cpu"
    assert visible_gpus() == []
    assert device_name(torch.device("cpu")) == "cpu"


def test_apples_gpu_is_chosen_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 0)
    give_apples(monkeypatch)
    assert default_device() == "mps"
    assert visible_gpus() == ["mps"]
    assert device_name(torch.device("mps")) == "mps"
    give_gpus(monkeypatch, 1)
    assert default_device() == "cuda"


@pytest.mark.parametrize(
    ("count", "visible", "expected"),
    [
        (3, None, ["0", "1", "2"]),
        (2, "2,5", ["2", "5"]),
        (1, "GPU-8932f937, 77", ["GPU-8932f937"]),  # torch does not know the second
        (0, "", []),
    ],
)
def test_gpus_are_named_as_another_process_knows_them(
    monkeypatch: pytest.MonkeyPatch, count: int, visible: str | None, expected: list[str]
) -> None:
    give_gpus(monkeypatch, count, visible)
    assert visible_gpus() == expected


def test_a_gpu_is_known_by_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 2)
    assert device_name(torch.device("cuda:1")) == "NVIDIA Stand-in 24 GB"
