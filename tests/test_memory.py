"""How much memory there is, as Linux says it and elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from pfes import memory
from pfes.errors import PfesError
from pfes.models.local import LocalModel
from pfes.tasks.batch import Batch
from tests import tiny


def test_what_can_be_given_up_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 24 kB\nMemFree:  2 kB\nMemAvailable:    18 kB\n")
    monkeypatch.setattr(memory, "MEMORY", file)
    assert memory.available_memory() == 18 * 1024
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "nothing")
    assert memory.available_memory() == memory.UNKNOWN


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_too_little_memory_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.is_out_of_memory(error)
    module = tiny.make_module("gpt2")
    model = LocalModel("gpt2", "causal", module, tiny.make_tokenizer("causal"))
    batch = Batch(((1, 2, 3),), (2,), (4, 5), np.array([0]), "prefix")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(model, "_passes", fail)
    with pytest.raises(PfesError, match="--max-batch-tokens"):
        model.logprobs(np.zeros((1, 2, model.width), dtype=np.float32), batch)
    error = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        model.logprobs(np.zeros((1, 2, model.width), dtype=np.float32), batch)
