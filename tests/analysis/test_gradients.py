"""Gradients against one-at-a-time backpropagation and finite differences; the file they go to."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pfes.analysis.gradients import GradientFile, collect_gradients, loss_gradients, random_prompt
from pfes.contract import Batch
from pfes.errors import PfesError
from pfes.models.local.local_model import LocalModel
from pfes.searches.encoded import encode_for
from pfes.searches.losses import Loss
from pfes.tasks import load_task
from tests import tiny


def prepare(name: str, task_file: Path, length: int = 3) -> tuple[LocalModel, Batch]:
    family = tiny.ARCHITECTURES[name][0]
    module = tiny.make_module(name).double()
    model = LocalModel(name, family, module, tiny.make_tokenizer(family))
    task = load_task(task_file, 3)
    return model, encode_for(model, task.spec, task.train, length)


def loss(model: LocalModel, prompt: np.ndarray, batch: Batch) -> float:
    """The mean cross-entropy in double precision, by torch alone."""
    from pfes.models.local.padded import padded_passes

    soft = torch.tensor(prompt[None])
    values = torch.zeros(len(batch), dtype=torch.float64)
    with torch.no_grad():
        for (_, rows), logits in padded_passes(model.module, model.family, soft, batch, 10_000):
            right = torch.tensor(batch.labels)[rows]
            words = logits[:, list(batch.words)]
            values[rows] = words.logsumexp(-1) - words[torch.arange(len(rows)), right]
    return float(values.mean())


@pytest.mark.parametrize(
    ("name", "step", "error"),
    [
        ("bert", 1e-5, 1e-6),
        ("albert", 1e-5, 1e-6),
        ("gpt2", 1e-5, 1e-6),
        ("opt-350m", 1e-5, 1e-6),
        ("llama", 1e-2, 1e-3),  # its norms compute in single precision whatever the model's
    ],
)
def test_gradients_equal_single_ones_and_finite_differences(
    name: str, step: float, error: float, task_file: Path
) -> None:
    model, batch = prepare(name, task_file)
    prompts = np.stack([random_prompt(model, 3, 0, n) for n in range(4)]).astype(np.float64)
    together = loss_gradients(model, prompts, batch)
    assert together.shape == prompts.shape
    assert together.dtype == np.float64
    for prompt, own in zip(prompts, together, strict=True):
        alone = loss_gradients(model, prompt[None], batch)[0]
        np.testing.assert_allclose(own, alone, rtol=1e-9, atol=1e-14)
    model.batch_tokens = 40  # several passes
    np.testing.assert_allclose(loss_gradients(model, prompts, batch), together, atol=1e-12)

    rng = np.random.default_rng(0)
    for _ in range(5):
        way = rng.standard_normal(prompts[0].shape)
        way /= np.linalg.norm(way)
        ends = [loss(model, prompts[0] + side * way, batch) for side in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert (together[0] * way).sum() == pytest.approx(slope, rel=error, abs=error * 1e-2)


def test_the_loss_equals_that_of_a_search(task_file: Path) -> None:
    model, batch = prepare("bert", task_file)
    prompt = random_prompt(model, 3, 0, 0)
    logprobs = model.logprobs(prompt[None], batch)
    own = Loss()(logprobs, batch.labels)[0]
    assert loss(model, prompt.astype(np.float64), batch) == pytest.approx(own, rel=1e-5)


def test_random_prompts_depend_on_their_number_alone(task_file: Path) -> None:
    model, _ = prepare("bert", task_file)
    first = random_prompt(model, 4, 1, 7)
    assert first.shape == (4, model.width)
    np.testing.assert_array_equal(first, random_prompt(model, 4, 1, 7))
    for other in (random_prompt(model, 4, 1, 8), random_prompt(model, 4, 2, 7)):
        assert not np.array_equal(first, other)


def test_collecting_gradients_continues_after_a_stop(task_file: Path, tmp_path: Path) -> None:
    model, batch = prepare("llama", task_file)
    model = LocalModel("llama", "causal", tiny.make_module("llama"), model.tokenizer)
    whole = GradientFile(tmp_path / "whole.npy", 50, 3 * model.width)
    *_, done = collect_gradients(model, batch, 3, 0, whole)
    assert done == 50
    parted = GradientFile(tmp_path / "parted.npy", 50, 3 * model.width)
    for done in collect_gradients(model, batch, 3, 0, parted):
        if done:
            break
    assert 0 < parted.done < 50
    parted.rows[parted.done] = 7  # what a kill in the middle of a group leaves is not counted
    again = GradientFile(tmp_path / "parted.npy", 50, 3 * model.width)
    assert again.done == parted.done
    for _ in collect_gradients(model, batch, 3, 0, again):
        pass
    np.testing.assert_array_equal(np.array(again.rows), np.array(whole.rows))
    assert np.isfinite(whole.rows).all()
    assert len(np.unique(whole.rows[:, 0])) > 40

    with pytest.raises(PfesError, match="other settings"):
        GradientFile(tmp_path / "whole.npy", 50, 2 * model.width)
    (tmp_path / "whole.npy").write_bytes(b"short")
    with pytest.raises(PfesError, match="cannot be used"):
        GradientFile(tmp_path / "whole.npy", 50, 3 * model.width)
    again.delete()
    assert not list(tmp_path.glob("parted*"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "gpt2", "opt"])
def test_gradients_of_a_model_in_half_precision_are_exact(
    name: str, dtype: torch.dtype, task_file: Path
) -> None:
    """As those of the same weights in double precision; in half they would differ by percents."""
    exact, batch = prepare(name, task_file)
    exact.module.to(dtype).double()
    prompts = np.stack([random_prompt(exact, 3, 0, n) for n in range(2)])
    wanted = loss_gradients(exact, prompts, batch)

    module = tiny.make_module(name).to(dtype)
    model = LocalModel(name, exact.family, module, exact.tokenizer)
    assert model.dtype == dtype
    gradients = loss_gradients(model, prompts, batch)
    assert gradients.dtype == np.float32
    assert np.linalg.norm(gradients - wanted) < 1e-4 * np.linalg.norm(wanted)
