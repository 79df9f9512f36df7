"""Models with fewer bits: answers are computed in float32 from the last hidden state."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from pfes.contract import Batch
from pfes.models.local.attention import AttentionInputs
from pfes.models.local.local_model import LocalModel
from pfes.models.local.packed import Layout
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


def nearest(length: int) -> Callable[..., torch.Tensor]:
    """Attention of a packed row in which each token sees so many before it, whosever they are."""

    def attend(layout: Layout, inputs: AttentionInputs) -> torch.Tensor:
        _, query, key, value, scale = inputs
        tokens = query.shape[2]
        near = torch.ones(tokens, tokens).tril().triu(-length)
        groups = query.shape[1] // key.shape[1]
        return scaled_dot_product_attention(
            query,
            key.repeat_interleave(groups, 1),
            value.repeat_interleave(groups, 1),
            attn_mask=near.bool(),
            scale=scale,
        ).transpose(1, 2)

    return attend


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("seen", [0, 20])  # nothing but itself; the other examples, too
def test_a_wrong_mask_is_found_in_any_precision(
    dtype: torch.dtype, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make("llama", dtype).fast_paths == {"last-layer", "prefix", "suffix"}
    monkeypatch.setattr(Layout, "attend", nearest(seen))
    assert make("llama", dtype).fast_paths == {"last-layer"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_half_precision_has_the_same_fast_paths(name: str, dtype: torch.dtype) -> None:
    assert make(name, dtype).fast_paths == make(name, torch.float32).fast_paths
