"""Prompt tuning: its gradient and its steps, against finite differences, PyTorch and PEFT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PromptTuningConfig, get_peft_model

from pfes.contract import Batch
from pfes.models.local.local_model import LocalModel
from pfes.optimizers import Adam
from pfes.optimizers.adam import RATES
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.objective import value_and_gradient
from pfes.searches.quick_readings import best_offsets, best_slopes
from pfes.tasks import load_task
from tests import tiny

LENGTH = 3
CASES = [("bert", "prefix"), ("gpt2", "prefix"), ("gpt2", "suffix"), ("gpt2", "middle")]


def prepare(name: str, placement: Any, task_file: Path, wide: bool) -> tuple[LocalModel, Batch]:
    family: Any = tiny.ARCHITECTURES[name][0]
    module = tiny.make_module(name)
    model = LocalModel(
        name, family, module.double() if wide else module, tiny.make_tokenizer(family)
    )
    return model, EncodedTask(model, load_task(task_file, 4), LENGTH, placement).train


@pytest.mark.parametrize(("name", "placement"), CASES)
@pytest.mark.parametrize("loss", [Loss(), Loss(0.5), Loss(after="offset")])
def test_the_gradient_is_that_of_finite_differences(
    name: str, placement: str, loss: Loss, task_file: Path
) -> None:
    model, batch = prepare(name, placement, task_file, wide=True)
    prompt = model.embed([11, 12, 13])
    (value, _), gradient = value_and_gradient(model, batch, prompt, loss)
    assert value == loss(model.logprobs(prompt[None], batch), batch.labels)
    way = gradient / np.linalg.norm(gradient)
    step = np.float32(1e-2 * np.linalg.norm(prompt))
    ends = np.stack([prompt + step * way, prompt - step * way])
    above, below = loss(model.logprobs(ends, batch), batch.labels)
    assert np.linalg.norm(gradient) == pytest.approx((above - below) / (2 * step), rel=1e-2)


@pytest.mark.parametrize(("name", "placement"), CASES)
def test_a_slope_is_held_while_a_gradient_is_taken(
    name: str, placement: str, task_file: Path
) -> None:
    model, batch = prepare(name, placement, task_file, wide=True)
    prompt, labels = model.embed([11, 12, 13]), batch.labels
    here = model.logprobs(prompt[None], batch)
    slope = best_slopes(here, labels)
    offsets = best_offsets(slope * here, labels)
    _, gradient = value_and_gradient(model, batch, prompt, Loss(after="slope"))
    way = gradient / np.linalg.norm(gradient)
    step = np.float32(1e-2 * np.linalg.norm(prompt))
    ends = model.logprobs(np.stack([prompt + step * way, prompt - step * way]), batch)
    above, below = Loss()(slope * ends - offsets, labels)
    assert np.linalg.norm(gradient) == pytest.approx((above - below) / (2 * step), rel=1e-2)


def test_several_passes_and_other_answer_words_change_nothing(task_file: Path) -> None:
    model, batch = prepare("llama", "suffix", task_file, wide=False)
    prompt = model.embed([11, 12, 13])
    slopes = np.random.default_rng(0).standard_normal((len(batch), 2)).astype(np.float32)
    whole = model.gradient(prompt, batch, slopes)
    model.set_batch_tokens(LENGTH)  # an example in each pass
    np.testing.assert_allclose(model.gradient(prompt, batch, slopes), whole, atol=1e-5)
    before = model.logprobs(prompt[None], batch)
    more = np.hstack([slopes, np.zeros_like(slopes)])
    wider = model.gradient(prompt, batch.with_words([5, 6]), more)
    np.testing.assert_allclose(wider, whole, atol=1e-5)
    np.testing.assert_array_equal(model.logprobs(prompt[None], batch), before)


def test_the_first_steps_are_those_of_peft(task_file: Path) -> None:
    model, batch = prepare("llama", "prefix", task_file, wide=False)
    start, rate, steps = model.embed([11, 12, 13]), 0.05, 6
    adam = Adam(start.reshape(-1), rate / RATES[0], steps)
    values = []
    for _ in range(steps):
        prompt = adam.ask()[0].reshape(start.shape)
        (value, _), gradient = value_and_gradient(model, batch, prompt, Loss())
        adam.follow(gradient.reshape(-1))
        adam.tell(value)
        values.append(value[0])

    settings = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=LENGTH)
    tuned = get_peft_model(tiny.make_module("llama"), settings).eval()
    weight = tuned.prompt_encoder["default"].embedding.weight
    weight.data[:] = torch.from_numpy(start)
    optimizer = torch.optim.Adam([weight], lr=rate)
    theirs = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = 0.0
        for row, label in zip(batch.token_ids, batch.labels.tolist(), strict=True):
            logits = tuned(input_ids=torch.tensor([row])).logits[0, -1, list(batch.words)]
            loss = loss - logits.log_softmax(-1)[label] / len(batch)
        loss.backward()  # type: ignore[attr-defined]
        optimizer.step()
        theirs.append(loss.item())  # type: ignore[attr-defined]
    np.testing.assert_allclose(values, theirs, rtol=1e-3)
    assert values[-1] < values[0]
    moved = weight.detach().numpy() - start
    ours = adam.solution.reshape(start.shape) - start
    assert np.abs(moved).max() > 0.1
    # a coordinate whose gradient changes its sign near zero steps by its sign alone
    assert np.median(np.abs(ours - moved)) < 1e-4
    assert np.corrcoef(ours.ravel(), moved.ravel())[0, 1] > 0.999


def test_every_learning_rate_takes_the_steps_of_pytorch_from_the_start() -> None:
    start = np.linspace(-1, 2, 7, dtype=np.float32)
    adam = Adam(start, 0.1, steps=4)
    for rate in RATES:
        weight = torch.tensor(start, requires_grad=True)
        theirs = torch.optim.Adam([weight], lr=0.1 * rate)
        for _ in range(4):
            x = adam.ask()[0]
            np.testing.assert_allclose(x, weight.detach(), rtol=1e-5, atol=1e-6)
            adam.follow(4 * x**3)
            adam.tell([(x**4).sum()])
            (weight**4).sum().backward()
            theirs.step()
            theirs.zero_grad()
        assert adam.sigma == pytest.approx(0.1 * rate)
        np.testing.assert_allclose(adam.solution, weight.detach(), rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_moves_nothing() -> None:
    adam = Adam(np.ones(3), 0.1, steps=5)
    for gradient, value in ((np.full(3, np.nan), 1.0), (np.ones(3), np.inf)):
        adam.ask()
        adam.follow(gradient.astype(np.float32))
        adam.tell([value])
        np.testing.assert_array_equal(adam.solution, np.ones(3))
    adam.ask()
    with pytest.raises(RuntimeError, match="follow"):
        adam.tell([1.0])
