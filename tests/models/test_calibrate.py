"""The measured size of a pass: within the limit, remembered, without effect on results."""

import json
from pathlib import Path

import numpy as np
import pytest

from pfes.models import calibrate as module
from pfes.models.local import LocalModel
from pfes.tasks.batch import Batch
from tests import tiny

BATCH = Batch(tuple((5, 6, 7, 8) for _ in range(6)), (3,) * 6, (0, 1), np.zeros(6, dtype=np.int64))
PROMPT = np.ones((4, 32), dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path))
    return LocalModel("tiny", "causal", tiny.make_module("llama"), tiny.make_tokenizer("causal"))


class Clocked:
    """A model of whose passes the time depends on their size alone."""

    def __init__(self, model: LocalModel, monkeypatch: pytest.MonkeyPatch, best: int) -> None:
        self.now = 0.0
        self.tried: list[int] = []

        def logprobs(prompts: np.ndarray, batch: Batch) -> None:
            self.tried.append(model.batch_tokens)
            self.now += len(prompts) * (1 + abs(np.log2(model.batch_tokens / best)))

        monkeypatch.setattr(model, "logprobs", logprobs)
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)


@pytest.mark.parametrize("best", [64, 512, 1024, 2048, 8192])
def test_the_fastest_size_is_found(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch, best: int
) -> None:
    Clocked(model, monkeypatch, best)
    assert module.calibrate(model, PROMPT, BATCH, 20) == best
    assert model.batch_tokens == 2048  # as it was: setting it is the caller's


@pytest.mark.parametrize("limit", [1, 700, 3000])
def test_the_limit_is_never_passed(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    model.max_batch_tokens = limit
    clocked = Clocked(model, monkeypatch, best=10**6)
    assert limit / 2 < module.calibrate(model, PROMPT, BATCH, 20) <= limit
    assert max(clocked.tried, default=1) <= limit


def test_a_choice_is_remembered(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = module.calibrate(model, PROMPT, BATCH, 20)
    (name,) = json.loads((tmp_path / "calibration.json").read_text())
    assert "tiny" in name
    (tmp_path / "calibration.json").write_text(json.dumps({name: 77}))
    assert module.calibrate(model, PROMPT, BATCH, 20) == 77
    (tmp_path / "calibration.json").write_text("{ damaged")
    assert module.calibrate(model, PROMPT, BATCH, 20) >= 1
    assert first >= 1


def test_a_cache_that_cannot_be_written_is_done_without(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "file" / "cache"))
    assert module.calibrate(model, PROMPT, BATCH, 20) >= 1
