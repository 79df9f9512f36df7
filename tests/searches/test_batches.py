"""Batches of training examples: every label in proportion, the same ones whenever drawn."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pfes
from pfes.contract import Batch, Placement
from pfes.searches.batches import draw_batch, draw_examples, usual_batch
from pfes.searches.encoded import EncodedTask
from pfes.tasks import load_task


def examples(counts: list[int]) -> Batch:
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(0).shuffle(labels)
    rows = tuple((i,) for i in range(len(labels)))
    return Batch(rows, (0,) * len(labels), (1, 2), labels)


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    part=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_every_label_is_there_in_proportion(counts: list[int], part: float, seed: int) -> None:
    size = max(1, int(part * sum(counts)))
    labels = examples(counts).labels
    drawn = draw_examples(labels, size, np.random.default_rng(seed))
    assert len(drawn) == size
    assert (np.diff(drawn) > 0).all()  # in order, none twice
    found = np.bincount(labels[drawn], minlength=len(counts))
    shares = size * np.array(counts) / sum(counts)
    if size >= len(counts):
        assert found.min() >= 1
    if shares.min() >= 1:
        assert (np.abs(found - shares) < 1).all()
    else:  # what rare labels have more comes from the others
        assert (found <= np.ceil(shares)).all()


def test_no_example_is_always_left_out() -> None:
    labels = examples([40, 9, 1]).labels
    seen = np.zeros(len(labels), dtype=int)
    for seed in range(400):
        seen[draw_examples(labels, 2, np.random.default_rng(seed))] += 1
    assert seen.min() > 0


@pytest.mark.parametrize("size", [None, 50, 51, 1000])
def test_all_examples_are_the_batch_itself(size: int | None) -> None:
    train = examples([30, 20])
    assert draw_batch(train, size, 0, 40) is train


def test_a_batch_depends_on_seed_and_place_alone() -> None:
    train = examples([30, 20])
    drawn = {
        (seed, spent): draw_batch(train, 10, seed, spent) for seed in (0, 1) for spent in (0, 20)
    }
    assert len({batch.token_ids for batch in drawn.values()}) == len(drawn)
    for (seed, spent), batch in drawn.items():
        assert draw_batch(train, 10, seed, spent).token_ids == batch.token_ids
        for (i,), label in zip(batch.token_ids, batch.labels, strict=True):
            assert train.labels[i] == label


@pytest.mark.parametrize(
    ("train", "labels", "size"),
    [
        *((16 * labels, labels, None) for labels in (2, 3, 4, 14, 20, 77)),
        (128, 2, None),
        (129, 2, 64),
        (4000, 2, 64),
        (448, 14, None),
        (4000, 14, 224),
    ],
)
def test_many_examples_are_taken_in_batches(train: int, labels: int, size: int | None) -> None:
    assert usual_batch(train, labels) == size


@pytest.mark.parametrize("placement", ["prefix", "suffix", "middle"])
def test_a_model_answers_for_a_batch_and_forgets_it(
    task_file: Path, folders: Callable[[str], Path], placement: Placement
) -> None:
    model = pfes.load_model(str(folders("llama")))
    train = EncodedTask(model, load_task(task_file, shots=16), 3, placement).train
    prompts = model.embed(range(6)).reshape(2, 3, model.width)
    whole = model.logprobs(prompts, train)
    for spent in (0, 20):
        batch = draw_batch(train, 5, 0, spent)
        places = [train.token_ids.index(row) for row in batch.token_ids]
        np.testing.assert_allclose(model.logprobs(prompts, batch), whole[:, places], atol=1e-5)
        texts = weakref.ref(batch.texts)
        del batch
        gc.collect()
        assert texts() is None
