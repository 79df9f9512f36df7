"""Products in bfloat16: tried by a child process, here a stand-in; used where right and fast."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pfes.contract import Batch
from pfes.errors import SettingError
from pfes.models.local import local_model, precision_trial
from pfes.models.local.load import load_model
from pfes.models.local.local_model import LocalModel
from pfes.models.local.precision_trial import CHILD, remembered_trial, try_half
from tests import tiny

BATCH = Batch(((20, 31, 42, 53), (25, 36)), (3, 1), (7, 8), np.zeros(2, dtype=np.int64))
FASTER = '{"float32": 2.0, "bfloat16": 1.0, "difference": 0.01}'
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def child(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def says(figures: str) -> tuple[str, ...]:
    return child(f"print({figures!r})")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "precision.json"


@pytest.fixture
def tried(
    cache: Path, monkeypatch: pytest.MonkeyPatch, folders: Callable[[str], Path]
) -> Callable[..., LocalModel]:
    """Return a function that loads a model whose trial is made by a stand-in."""

    monkeypatch.setattr(local_model, "SMALLEST", 0)

    def load(command: tuple[str, ...], name: str = "llama", **options: str) -> LocalModel:
        monkeypatch.setattr(
            local_model,
            "remembered_trial",
            lambda key, job: remembered_trial(key, job, command, limit=20),
        )
        return load_model(str(folders(name)), device="cpu", **options)  # type: ignore[arg-type]

    return load


@pytest.mark.parametrize(
    ("command", "works", "why"),
    [
        (says(FASTER), True, "2.00 times as fast"),
        (says('{"float32": 1.0, "bfloat16": 2.0, "difference": 0.01}'), True, "0.50 times"),
        (says('{"float32": 2.0, "bfloat16": 1.0, "difference": 0.7}'), False, "differ by 0.7"),
        (says('{"float32": 2.0, "bfloat16": 1.0, "difference": NaN}'), False, "differ by nan"),
        (says("hello"), False, "no figures"),
        (child(""), False, "no figures"),
        (child(CRASH), False, "died: Illegal instruction"),
        (child("raise ValueError('what')"), False, "failed: ValueError: what"),
        (("/no/such/program",), False, "No such file"),
    ],
)
def test_a_trial_is_judged(command: tuple[str, ...], works: bool, why: str) -> None:
    trial = try_half({}, command, limit=60)
    assert (trial.works, trial.worth) == (works, "2.00" in why)
    assert why in trial.why


def test_a_process_that_hangs_is_ended() -> None:
    trial = try_half({}, child("import time; time.sleep(600)"), limit=1)
    assert not trial.works
    assert "no answer within 1 seconds" in trial.why


def test_a_trial_is_remembered_by_work_and_machine(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remembered_trial("one", {}, says(FASTER)).speed == 2
    assert remembered_trial("one", {}, child(CRASH)).speed == 2
    assert not remembered_trial("two", {}, child(CRASH)).works
    monkeypatch.setattr(precision_trial, "this_machine", lambda: "another")
    assert not remembered_trial("one", {}, child(CRASH)).works
    known = json.loads(cache.read_text())
    assert len(known) == 3
    cache.write_text(json.dumps({name: {"works": "perhaps"} for name in known}))
    assert remembered_trial("one", {}, says(FASTER)).works


def test_the_real_child_compares_both(cache: Path, folders: Callable[[str], Path]) -> None:
    model = load_model(str(folders("llama")), device="cpu", dtype="float32")
    assert model.for_search(None, 3, BATCH) is model  # float32 was asked for, so nothing is tried
    assert not cache.exists()
    job = {
        "model": str(folders("llama")), "trust_remote_code": False, "threads": 1, "length": 3,
        "batch_tokens": 64, "rows": BATCH.token_ids, "answers": BATCH.answers,
        "words": BATCH.words, "placement": "prefix", "end": (),
    }  # fmt: skip
    trial = try_half(job, CHILD)
    assert trial.works, trial.why
    assert trial.speed > 0


@pytest.mark.parametrize(
    "command", [child(CRASH), says('{"float32": 6, "bfloat16": 5, "difference": 0}')]
)
def test_what_is_not_worth_it_is_not_used(
    tried: Callable[..., LocalModel], command: tuple[str, ...]
) -> None:
    model = tried(command)
    assert model.for_search(None, 3, BATCH) is model
    assert model.for_search("float32", 3, BATCH) is model


def test_a_run_that_began_in_bfloat16_is_refused_where_it_cannot_go_on(
    tried: Callable[..., LocalModel],
) -> None:
    with pytest.raises(SettingError, match="does not work on this machine: .*Illegal"):
        tried(child(CRASH)).for_search("bfloat16", 3, BATCH)
    with pytest.raises(SettingError, match="float32 only, not in float16"):
        tried(says(FASTER)).for_search("float16", 3, BATCH)


def test_a_run_that_began_in_bfloat16_goes_on_where_it_is_slower(
    tried: Callable[..., LocalModel], cache: Path
) -> None:
    slower = says('{"float32": 1.0, "bfloat16": 2.0, "difference": 0.01}')
    assert tried(slower, dtype="float32").for_search("bfloat16", 3, BATCH).precision == "bfloat16"


def test_a_model_without_a_name_cannot_be_tried() -> None:
    model = LocalModel("own", "causal", tiny.make_module("llama"), tiny.make_tokenizer("causal"))
    assert model.for_search(None, 3, BATCH) is model
    with pytest.raises(SettingError, match="own answers in float32 only"):
        model.for_search("bfloat16", 3, BATCH)


def test_a_tiny_model_is_not_worth_a_trial(
    tried: Callable[..., LocalModel], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_model, "SMALLEST", 10**6)
    model = tried(says(FASTER))
    assert model.for_search(None, 3, BATCH) is model
    assert not cache.exists()
    assert model.for_search("bfloat16", 3, BATCH) is not model  # asked for, it is tried


def test_too_little_memory_for_both_copies(
    tried: Callable[..., LocalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tried(says(FASTER))
    monkeypatch.setattr(local_model, "available_memory", lambda: 1000)
    assert model.for_search(None, 3, BATCH) is model


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "roberta"])
def test_products_alone_are_rounded(tried: Callable[..., LocalModel], name: str) -> None:
    """An independent forward pass: every matrix and what it multiplies, rounded to bfloat16."""
    model = tried(says(FASTER), name)
    half = model.for_search(None, 3, BATCH)
    assert (half.precision, model.precision) == ("bfloat16", "float32")
    assert model.for_search("bfloat16", 3, BATCH) is half  # made once
    assert half.fast_paths == model.fast_paths
    prompt = np.random.default_rng(0).standard_normal((1, 3, model.width)).astype(np.float32)
    exact, found = model.logprobs(prompt, BATCH), half.logprobs(prompt, BATCH)
    assert np.abs(found - exact).max() > 0

    def rounded(part: torch.nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (args[0].bfloat16().float(),)

    def result(part: torch.nn.Module, args: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        bias = 0 if part.bias is None else part.bias
        return (out - bias).bfloat16().float() + bias

    imitation = load_model(model.name, device="cpu", dtype="float32")
    kept = ("lm_head",)
    for place, part in imitation.module.named_modules():
        if getattr(part, "weight", None) is None or part.weight.ndim != 2:
            continue
        if isinstance(part, torch.nn.Embedding) or place.startswith(kept):
            continue
        part.weight.data = part.weight.data.bfloat16().float()
        part.register_forward_pre_hook(rounded)
        part.register_forward_hook(result)
    expected = imitation.logprobs(prompt, BATCH)
    assert np.abs(found - expected).max() < 0.5 * np.abs(found - exact).max()
