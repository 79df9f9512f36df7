"""How many tokens a forward pass has: the fastest size within the limit, measured once."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pfes.contract import Batch
from pfes.errors import OutOfMemoryError
from pfes.models.local import local_model
from pfes.models.local.batch_size import fastest_batch_tokens, remembered_batch_tokens
from pfes.models.local.local_model import LocalModel
from tests import tiny


class Timed:
    """Fake measurements: the further from the best size, the slower."""

    def __init__(self, best: float) -> None:
        self.best = best
        self.tried: list[int] = []

    def __call__(self, tokens: int) -> float:
        self.tried.append(tokens)
        return 1 + abs(math.log2(tokens / self.best))


@pytest.mark.parametrize("best", [1, 64, 512, 1024, 2048, 8192])
def test_the_fastest_size_is_found(best: int) -> None:
    seconds = Timed(best)
    assert fastest_batch_tokens(8192, seconds) == best
    assert len(set(seconds.tried)) == len(seconds.tried)  # no size is measured twice


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (4096, [1024, 2048, 4096, 8192]),  # it doubles until that is no faster
        (256, [1024, 2048, 512, 256, 128]),  # or halves
        (1024, [1024, 2048, 512]),  # or stays where it began
    ],
)
def test_sizes_are_doubled_or_halved(best: int, tried: list[int]) -> None:
    seconds = Timed(best)
    assert fastest_batch_tokens(100_000, seconds) == best
    assert seconds.tried == tried


def test_a_small_gain_is_not_worth_another_size() -> None:
    assert fastest_batch_tokens(8192, lambda tokens: 1 - 1e-6 * tokens) == 1024
    assert fastest_batch_tokens(8192, lambda tokens: 1.0) == 1024


class Small:
    """Fake measurements on a device with room for so many tokens: the more, the faster."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.tried: list[int] = []

    def __call__(self, tokens: int) -> float:
        self.tried.append(tokens)
        if tokens > self.room:
            raise OutOfMemoryError("none left")
        return 1 / tokens


@pytest.mark.parametrize(
    ("room", "expected", "tried"),
    [
        (5000, 4096, [1024, 2048, 4096, 8192]),  # the last size that fits is kept
        (2000, 1024, [1024, 2048, 512]),
        (1000, 512, [1024, 512, 256]),  # what is larger than one that does not fit is not tried
        (3, 2, [1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1]),
        (1, 1, [1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1]),
    ],
)
def test_a_size_that_does_not_fit_ends_the_doubling(
    room: int, expected: int, tried: list[int]
) -> None:
    seconds = Small(room)
    assert fastest_batch_tokens(100_000, seconds) == expected
    assert seconds.tried == tried


def test_where_no_token_fits_there_is_nothing_to_choose(cache: Path) -> None:
    with pytest.raises(OutOfMemoryError, match="none left"):
        remembered_batch_tokens("one", 8192, Small(0))
    assert not cache.exists()


@pytest.mark.parametrize("limit", [1, 700, 1024, 3000])
@pytest.mark.parametrize("best", [0.5, 10**6])
def test_the_limit_is_never_passed(limit: int, best: float) -> None:
    seconds = Timed(best)
    found = fastest_batch_tokens(limit, seconds)
    assert found == 1 if best < 1 else limit / 2 < found <= limit
    assert max(seconds.tried, default=1) <= limit
    assert min(seconds.tried, default=1) >= 1


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that remembers the sizes, not there yet."""
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "batch-sizes.json"


def test_a_size_is_measured_once_for_each_key(cache: Path) -> None:
    first, second = Timed(2048), Timed(256)
    assert remembered_batch_tokens("one", 8192, first) == 2048
    assert remembered_batch_tokens("two", 8192, second) == 256
    assert json.loads(cache.read_text()) == {"one": 2048, "two": 256}
    first.tried.clear()
    assert remembered_batch_tokens("one", 8192, first) == 2048
    assert first.tried == []


def test_what_another_process_measured_meanwhile_counts(cache: Path) -> None:
    def slower(tokens: int) -> float:
        cache.parent.mkdir(exist_ok=True)
        cache.write_text(json.dumps({"one": 77, "other": 5}))
        return 1.0

    assert remembered_batch_tokens("one", 8192, slower) == 77
    assert json.loads(cache.read_text()) == {"one": 77, "other": 5}


@pytest.mark.parametrize("content", ["{ damaged", "", "[1, 2]", '{"one": "many"}', '{"one": null}'])
def test_a_damaged_cache_is_measured_anew(cache: Path, content: str) -> None:
    cache.parent.mkdir()
    cache.write_text(content)
    assert remembered_batch_tokens("one", 8192, Timed(512)) == 512
    assert json.loads(cache.read_text()) == {"one": 512}


def test_an_unwritable_cache_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "file" / "cache"))
    assert remembered_batch_tokens("one", 8192, Timed(512)) == 512


BATCH = Batch(tuple((5, 6, 7, 8) for _ in range(6)), (3,) * 6, (0, 1), np.zeros(6, dtype=np.int64))
PROMPT = np.ones((4, 32), dtype=np.float32)


class TimedModel(LocalModel):
    """A model whose passes take a time that depends on their size alone."""

    now = 0.0
    seconds: Callable[[int], float] = Timed(1024)

    def logprobs(self, prompts: np.ndarray, batch: Batch) -> np.ndarray:
        self.now += len(prompts) * self.seconds(self.batch_tokens)
        return np.zeros((len(prompts), len(batch), 2), dtype=np.float32)


@pytest.fixture
def model(cache: Path, monkeypatch: pytest.MonkeyPatch) -> TimedModel:
    made = TimedModel("tiny", "causal", tiny.make_module("llama"), tiny.make_tokenizer("causal"))
    monkeypatch.setattr(local_model.time, "perf_counter", lambda: made.now)
    return made


@pytest.mark.parametrize("best", [64, 512, 1024, 2048, 8192])
def test_a_model_measures_its_own_passes(model: TimedModel, best: int) -> None:
    model.seconds = Timed(best)
    assert model.choose_batch_tokens(PROMPT, BATCH, 20) == best
    assert model.batch_tokens == 2048  # as it was: setting it is the caller's


@pytest.mark.parametrize("limit", [1, 700, 3000])
def test_a_model_keeps_to_its_limit(model: TimedModel, limit: int) -> None:
    model.max_batch_tokens = limit
    model.seconds = seconds = Timed(10**6)
    assert limit / 2 < model.choose_batch_tokens(PROMPT, BATCH, 20) <= limit
    assert max(seconds.tried, default=1) <= limit


def test_a_choice_is_remembered_by_model_and_work(model: TimedModel, cache: Path) -> None:
    model.choose_batch_tokens(PROMPT, BATCH, 20)
    (name,) = json.loads(cache.read_text())
    assert "tiny" in name
    cache.write_text(json.dumps({name: 77}))
    assert model.choose_batch_tokens(PROMPT, BATCH, 20) == 77
    assert model.choose_batch_tokens(PROMPT, BATCH, 10) != 77
    assert model.choose_batch_tokens(PROMPT[:2], BATCH, 20) != 77
    assert model.choose_batch_tokens(PROMPT, BATCH.take([0, 1]), 20) != 77
    assert len(json.loads(cache.read_text())) == 4


@pytest.mark.usefixtures("cache")
def test_a_real_model_chooses_a_size_within_its_limit() -> None:
    module, tokenizer = tiny.make_module("llama"), tiny.make_tokenizer("causal")
    model = LocalModel("tiny", "causal", module, tokenizer, max_batch_tokens=2048)
    wanted = model.logprobs(PROMPT[None], BATCH)
    chosen = model.choose_batch_tokens(PROMPT, BATCH, 20)
    assert 1 <= chosen <= 2048
    model.set_batch_tokens(chosen)
    np.testing.assert_allclose(model.logprobs(PROMPT[None], BATCH), wanted, atol=1e-5)
    model.set_batch_tokens(None)
    assert model.batch_tokens == 2048


@pytest.mark.usefixtures("cache")
def test_a_pass_that_does_not_fit_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that fails as torch does, for more than so many tokens in one pass."""
    module, tokenizer = tiny.make_module("llama"), tiny.make_tokenizer("causal")
    model = LocalModel("tiny", "causal", module, tokenizer)
    forward, sizes = module.forward, []

    def limited(*args: object, **options: Any) -> object:
        rows, tokens = options["inputs_embeds"].shape[:2]
        sizes.append(rows * tokens)
        if sizes[-1] > 60:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(*args, **options)

    monkeypatch.setattr(module, "forward", limited)
    monkeypatch.setattr(local_model.time, "perf_counter", lambda: 0.0)
    chosen = model.choose_batch_tokens(PROMPT, BATCH, 20)
    assert max(sizes) > 60, "it was not tried"
    model.set_batch_tokens(chosen)
    assert model.logprobs(np.repeat(PROMPT[None], 20, axis=0), BATCH).shape == (20, 6, 2)


def test_a_gpu_is_remembered_by_its_model(
    model: TimedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters that say they are on a GPU: which one does not matter, but of which model."""
    names = ["RTX 4090", "RTX 4090", "A100"]

    def properties(device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(name=f"NVIDIA {names[device.index]}", total_memory=24 * 2**30)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    for index, best in ((0, 2048), (1, 64), (2, 256)):
        there = SimpleNamespace(device=torch.device(f"cuda:{index}"))
        monkeypatch.setattr(model.module, "parameters", lambda there=there: [there])
        model.seconds = Timed(best)
        assert model.choose_batch_tokens(PROMPT, BATCH, 20) == (2048, 2048, 256)[index]
    second, first = json.loads(cache.read_text())
    assert "NVIDIA RTX 4090 24 GB" in first
    assert "NVIDIA A100 24 GB" in second
    assert "cuda" not in first + second
