"""Models with fewer bits: answers are computed in float32 from the last hidden state."""

import numpy as np
import pytest
import torch

from pfes.contract import Batch
from pfes.models.local.local_model import LocalModel
from tests import tiny

ROW = (20, 31, 42, 53, 64)
WORDS = (7, 8, 9)
PROMPT = np.random.default_rng(0).standard_normal((1, 3, 32)).astype(np.float32)


def make(name: str, dtype: torch.dtype) -> LocalModel:
    family = tiny.ARCHITECTURES[name][0]
    module = tiny.make_module(name).to(dtype)
    return LocalModel(name, family, module, tiny.make_tokenizer(family))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "opt", "gpt2", "roberta", "bert"])
def test_answers_have_the_precision_of_float32(name: str, dtype: torch.dtype) -> None:
    model = make(name, dtype)
    batch = Batch((ROW,), (len(ROW) - 1,), WORDS, np.zeros(1, dtype=np.int64))
    head = model.module.get_output_embeddings()
    seen: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(0, -2)[-1]))
    found, ranks = model.ranks(PROMPT, batch)
    hook.remove()
    assert seen[-1].dtype == head.weight.dtype == dtype
    logits = seen[-1].double() @ head.weight.double().T
    if head.bias is not None:
        logits += head.bias.double()
    expected = logits.log_softmax(-1)[list(WORDS)]
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-5)  # a step of bfloat16 is 0.03 here
    assert ranks is not None
    order = torch.argsort(logits, descending=True).tolist()
    assert ranks[0, 0].tolist() == [order.index(word) + 1 for word in WORDS]
