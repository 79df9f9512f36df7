"""What all texts begin with is kept once, and all candidates look back at it together."""

import numpy as np
import pytest
import torch

from pfes.contract import Batch, Placement
from pfes.models.local.local_model import LocalModel
from pfes.models.local.suffix import LEAST_COMMON, TOGETHER, SuffixEvaluator, _nbytes
from tests import tiny

WORDS = (5, 6)
OWN = (2, 9, 5, 7)  # tokens of each text, behind those that all have


def make(name: str, dtype: torch.dtype = torch.float32) -> LocalModel:
    module = tiny.make_module(name).to(dtype)
    return LocalModel(name, "causal", module, tiny.make_tokenizer("causal"))


def batch_of(common: int, end: tuple[int, ...] = ()) -> Batch:
    shared = tuple(range(30, 30 + common))
    rows = tuple((*shared, *range(60 + 10 * n, 60 + 10 * n + size)) for n, size in enumerate(OWN))
    answers = tuple(len(row) - 1 for row in rows)
    placement: Placement = "middle" if end else "suffix"
    return Batch(rows, answers, WORDS, np.array([0, 1, 1, 0]), placement, end=end)


def prompts_for(model: LocalModel, candidates: int, length: int) -> np.ndarray:
    rng = np.random.default_rng(candidates)
    return rng.standard_normal((candidates, length, model.width), dtype=np.float32)


def alone(model: LocalModel, prompt: np.ndarray, batch: Batch) -> np.ndarray:
    """Each example in a plain pass of its own."""
    embedding = model.module.get_input_embeddings()
    answers = []
    for row in batch.token_ids:
        behind = embedding(torch.tensor(batch.ending(len(prompt)), dtype=torch.long))
        parts = (embedding(torch.tensor(row)), torch.from_numpy(prompt).to(model.dtype), behind)
        with torch.no_grad():
            logits = model.module(inputs_embeds=torch.cat(parts)[None]).logits[0, -1]
        answers.append(logits.double().log_softmax(-1)[list(WORDS)].numpy())
    return np.array(answers)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "mistral"])
@pytest.mark.parametrize("common", [0, 1, LEAST_COMMON - 1, LEAST_COMMON, 30])
@pytest.mark.parametrize("candidates", [1, TOGETHER, TOGETHER + 3])
@pytest.mark.parametrize("end", [(), (41, 42, 43)])
def test_answers_are_those_of_a_plain_pass(
    name: str, common: int, candidates: int, end: tuple[int, ...]
) -> None:
    model, batch = make(name), batch_of(common, end)
    prompts = prompts_for(model, candidates, 3)
    wanted = [alone(model, prompt, batch) for prompt in prompts]
    for max_tokens in (7, 4096):  # a few examples at a time, and all
        model.batch_tokens = max_tokens
        for _ in range(2):  # the second time from what was kept
            np.testing.assert_allclose(model.logprobs(prompts, batch), wanted, atol=1e-5)


def test_common_tokens_are_kept_once() -> None:
    model = make("llama")
    model.batch_tokens = 4096
    evaluator = model.paths._evaluators["suffix"]
    assert isinstance(evaluator, SuffixEvaluator)
    kept = {}
    for common in (0, 30):
        batch = batch_of(common)
        model.logprobs(prompts_for(model, 2, 3), batch)
        (texts,) = evaluator._texts[batch.texts][3, 4096]
        kept[common] = _nbytes([texts])
        assert texts.longest == max(OWN)
    layers, heads = model.module.config.num_hidden_layers, model.module.config.num_key_value_heads
    size = model.module.config.hidden_size // model.module.config.num_attention_heads
    assert kept[30] - kept[0] == 2 * layers * heads * 30 * size * 4


def test_gradients_are_those_of_what_is_not_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    slopes = np.ones((len(OWN), len(WORDS)), dtype=np.float32)
    found = []
    for least in (LEAST_COMMON, 1000):
        monkeypatch.setattr("pfes.models.local.suffix.LEAST_COMMON", least)
        model, batch = make("llama"), batch_of(30, (41, 42))
        found.append(model.gradient(prompts_for(model, 1, 3)[0], batch, slopes))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert np.abs(found[0]).max() > 1e-3


def test_half_precision_stays_near() -> None:
    model, batch = make("llama", torch.bfloat16), batch_of(30)
    prompts = prompts_for(model, 2, 3)
    wanted = [alone(model, prompt, batch) for prompt in prompts]
    np.testing.assert_allclose(model.logprobs(prompts, batch), wanted, atol=0.05)
