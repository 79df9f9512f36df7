"""An answer does not depend on the rows that share its pass, whatever an architecture does."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from pfes.contract import Batch
from pfes.errors import PfesError
from pfes.models.local.local_model import LocalModel
from tests import tiny

SMALL: dict[str, Any] = {
    "vocab_size": 700, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "pad_token_id": 1,
}  # fmt: skip
SHARED = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
SIGHT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
STRETCHED = {
    "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32,
    "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
}  # fmt: skip
ESM = {"mask_token_id": 4, "token_dropout": True, "position_embedding_type": "rotary"}


def configuration(name: str) -> transformers.PreTrainedConfig:
    if name == "fnet":  # its Fourier transform mixes padding in
        own = {k: v for k, v in SMALL.items() if k != "num_attention_heads"}
        return transformers.FNetConfig(**own, max_position_embeddings=64, tpu_short_seq_length=64)
    if name == "convbert":  # its convolution sees its neighbours
        return transformers.ConvBertConfig(**SMALL, embedding_size=32)
    if name == "gemma3":  # its window is in the part for text
        text = SHARED | {"sliding_window": 20, "max_position_embeddings": 77}
        return transformers.Gemma3Config(text_config=text, vision_config=SIGHT)
    if name == "phi3":  # its positions are stretched by the longest row of a pass
        own = SHARED | {"bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 128}
        return transformers.Phi3Config(
            **own, rope_parameters=STRETCHED, original_max_position_embeddings=32
        )
    return transformers.EsmConfig(**SMALL, **ESM)


def make(name: str) -> LocalModel:
    family = "masked" if name in ("fnet", "convbert", "esm") else "causal"
    auto = getattr(transformers, f"AutoModelFor{family.capitalize()}LM")
    torch.manual_seed(0)
    module = auto.from_config(configuration(name))
    return LocalModel(name, family, module, tiny.make_tokenizer(family))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("fnet", "prefix"),
        ("convbert", "prefix"),
        ("gemma3", "prefix"),
        ("gemma3", "suffix"),
        ("phi3", "prefix"),
        ("phi3", "suffix"),
    ],
)
def test_answers_are_those_of_each_row_alone(name: str, placement: Any) -> None:
    model = make(name)
    sizes = (4, 30, 31, 31, 45)
    rows = tuple(tuple(range(20 + n, 20 + n + size)) for n, size in enumerate(sizes))
    answers = tuple(2 if model.family == "masked" else size - 1 for size in sizes)
    batch = Batch(rows, answers, (5, 6), np.zeros(len(rows), dtype=np.int64), placement)
    prompts = np.random.default_rng(0).standard_normal((2, 3, model.width)).astype(np.float32)
    found = model.logprobs(prompts, batch)
    for number, row in enumerate(rows):
        for prompt, own in zip(prompts, found, strict=True):
            text = model.module.get_input_embeddings()(torch.tensor(row))
            soft = torch.from_numpy(prompt)
            front = {"suffix": len(row), "prefix": 0}[placement]
            if model.family == "masked":
                front = 1
            whole = torch.cat([text[:front], soft, text[front:]])
            with torch.inference_mode():
                logits = model.module(inputs_embeds=whole[None]).logits[0]
            where = 2 + len(soft) if model.family == "masked" else -1
            alone = logits[where].log_softmax(-1)[[5, 6]]
            np.testing.assert_allclose(own[number], alone.numpy(), atol=2e-5)


def attends_by_plan(model: LocalModel, tokens: int, placement: Any) -> bool:
    """Whether rows of so many tokens, prompt included, are evaluated with our own attention."""
    row = tuple(range(20, 20 + tokens - 3))
    batch = Batch((row,), (len(row) - 1,), (5, 6), np.zeros(1, dtype=np.int64), placement)
    seen = set()
    hook = model.module.register_forward_pre_hook(
        lambda module, _: seen.add(module.config._attn_implementation)
    )
    model.logprobs(np.zeros((1, 3, model.width), dtype=np.float32), batch)
    hook.remove()
    return "pfes" in seen


@pytest.mark.parametrize("placement", ["prefix", "suffix"])
@pytest.mark.parametrize(
    ("name", "longest"),
    [("gemma3", 20), ("phi3", 32)],  # its window; where its positions begin to be stretched
)
def test_long_rows_are_evaluated_by_the_plain_path(name: str, longest: int, placement: Any) -> None:
    model = make(name)
    assert model.fast_paths == {"last-layer", "prefix", "suffix"}
    assert attends_by_plan(model, longest, placement)
    assert not attends_by_plan(model, longest + 1, placement)


def test_the_longest_row_is_that_of_the_part_for_text() -> None:
    assert make("gemma3").max_length == 77


def test_a_model_that_treats_embeddings_otherwise_than_tokens_is_refused() -> None:
    with pytest.raises(PfesError, match="'esm' gives different outputs for inputs_embeds"):
        make("esm")
