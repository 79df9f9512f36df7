"""What every language model has: what it must bring, and what has defaults."""

import copy

import numpy as np
import pytest

from pfes.contract import Batch, LanguageModel
from tests.stand_in import StandIn

BATCH = Batch(((1, 2), (3, 4, 5), (6,)), (1, 2, 0), (7, 8), np.array([0, 1, 1]))


@pytest.mark.parametrize("missing", ["vocabulary", "embed", "logprobs"])
def test_a_model_needs_a_vocabulary_embeddings_and_answers(missing: str) -> None:
    kind = type("Incomplete", (StandIn,), {missing: getattr(LanguageModel, missing)})
    with pytest.raises(TypeError, match=missing):
        kind()


def test_the_rest_has_defaults() -> None:
    model = StandIn()
    prompts = np.ones((2, 3, model.width), dtype=np.float32)
    logprobs, ranks = model.ranks(prompts, BATCH)
    np.testing.assert_array_equal(logprobs, model.logprobs(prompts, BATCH))
    assert ranks is None
    assert model.choose_batch_tokens(prompts[0], BATCH, 2) is None
    assert model.precision is None
    model.set_batch_tokens(100)
    model.close()


def test_copies_share_the_model() -> None:
    model = StandIn()
    assert copy.deepcopy([model])[0] is model


def test_some_examples_of_a_batch_in_the_order_given() -> None:
    part = BATCH.take(np.array([2, 0]))
    assert (len(BATCH), len(part)) == (3, 2)
    assert part.token_ids == ((6,), (1, 2))
    assert part.answers == (0, 1)
    assert part.labels.tolist() == [1, 0]
    assert (part.words, part.placement) == (BATCH.words, BATCH.placement)
