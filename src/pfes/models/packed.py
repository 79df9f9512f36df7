"""Causal models without a wasted token: the prompt once, the examples behind it in one row.

A row is `prompt, example 1, example 2, …` without padding. Everything but attention works on single
tokens and does not see the difference; attention is regrouped so that each example sees the prompt
and itself. The model stays unpatched: transformers lets a library bring its own attention function.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from pfes.models.head import head_at
from pfes.models.padded import Pass, padded_passes
from pfes.tasks.batch import Batch

NAME = "pfes_packed"
TOLERANCE = 1e-3  # of log-probabilities, in the check at load; true differences are far larger


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a packed row belong."""

    length: int  # of the prompt
    examples: list[int]
    ids: torch.Tensor  # (tokens,) of all examples, one behind the other
    positions: torch.Tensor  # (length + tokens,)
    answers: torch.Tensor  # (examples,) places in the row
    padded: torch.Tensor  # (examples · longest,) the place in the row of each padded token
    packed: torch.Tensor  # (tokens,) the inverse: each token's place among the padded ones
    visible: torch.Tensor  # (examples, 1, longest, length + longest)


_layout: ContextVar[Layout | None] = ContextVar("layout", default=None)


def packed_passes(module: Any, soft: torch.Tensor, batch: Batch, max_tokens: int) -> Iterator[Pass]:
    """Evaluate prompts `soft` (candidates, length, width), several to a pass where they fit."""
    length = soft.shape[1]
    for examples in _groups(batch, length, max_tokens):
        layout = _make_layout(batch, examples, length, soft.device)
        together = max(1, max_tokens // len(layout.positions))
        for start in range(0, len(soft), together):
            prompts = soft[start : start + together]
            candidates = np.arange(start, start + len(prompts))
            pairs = (np.repeat(candidates, len(examples)), np.tile(examples, len(prompts)))
            yield pairs, _logits(module, prompts, layout)


def takes_part(module: Any) -> bool:
    """Say whether an architecture gives the same answers packed as the plain way, by trying."""
    if not getattr(module, "_supports_attention_backend", False):
        return False
    if "position_ids" not in inspect.signature(module.forward).parameters:
        return False
    rows = ((1, 2, 3, 4, 5), (6, 7, 8))
    batch = Batch(rows, (4, 2), (0, 1), np.zeros(2, dtype=np.int64))
    soft = module.get_input_embeddings().weight[None, 9:11]
    try:
        with torch.inference_mode():
            plain = dict(_by_pair(padded_passes(module, "causal", soft, batch, 64)))
            packed = dict(_by_pair(packed_passes(module, soft, batch, 64)))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return all(torch.allclose(packed[pair], plain[pair], atol=TOLERANCE) for pair in plain)


def longest_seen(config: Any) -> int | None:
    """Return the window beyond which some layers do not look back, or None."""
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=None)


def _by_pair(passes: Iterator[Pass]) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    for (candidates, examples), logits in passes:
        logprobs = logits.float().log_softmax(-1)
        pairs = zip(candidates.tolist(), examples.tolist(), strict=True)
        yield from zip(pairs, logprobs, strict=True)


def _groups(batch: Batch, length: int, max_tokens: int) -> Iterator[list[int]]:
    """Part the examples, shortest first, into rows of at most `max_tokens` with the prompt."""
    sizes = [len(row) for row in batch.token_ids]
    group: list[int] = []
    used = length
    for i in np.argsort(sizes, kind="stable").tolist():
        if group and used + sizes[i] > max_tokens:
            yield group
            group, used = [], length
        group.append(i)
        used += sizes[i]
    yield group


def _make_layout(batch: Batch, examples: list[int], length: int, device: torch.device) -> Layout:
    sizes = torch.tensor([len(batch.token_ids[i]) for i in examples])
    starts = length + sizes.cumsum(0) - sizes
    longest = int(sizes.max())
    steps = torch.arange(longest)
    real = steps < sizes[:, None]  # (examples, longest)
    # a padded token repeats its example's first: it is computed in attention alone, never read
    padded = torch.where(real, starts[:, None] + steps, starts[:, None])
    visible = torch.ones(len(examples), 1, longest, length + longest, dtype=torch.bool)
    visible[..., length:] = torch.ones(longest, longest, dtype=torch.bool).tril()
    ids = [token for i in examples for token in batch.token_ids[i]]
    answers = torch.tensor([batch.answers[i] for i in examples])
    return Layout(
        length,
        examples,
        torch.tensor(ids, device=device),
        torch.cat([torch.arange(length), (length + steps).expand_as(real)[real]]).to(device),
        (starts + answers).to(device),
        padded.flatten().to(device),
        real.flatten().nonzero()[:, 0].to(device),
        visible.to(device),
    )


def _logits(module: Any, prompts: torch.Tensor, layout: Layout) -> torch.Tensor:
    text = module.get_input_embeddings()(layout.ids)  # (tokens, width)
    rows = torch.cat([prompts, text.expand(len(prompts), -1, -1)], dim=1)

    def pick(values: torch.Tensor) -> torch.Tensor:
        return values[:, layout.answers.to(values.device)]

    with _packed_attention(module, layout), head_at(module, pick) as finish:
        output = module(
            inputs_embeds=rows,
            position_ids=layout.positions.expand(len(prompts), -1),
            use_cache=False,
        )
        return finish(output.logits).flatten(0, 1)


@contextmanager
def _packed_attention(module: Any, layout: Layout) -> Iterator[None]:
    before = module.config._attn_implementation
    token = _layout.set(layout)
    module.config._attn_implementation = NAME
    try:
        yield
    finally:
        module.config._attn_implementation = before
        _layout.reset(token)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each example and to the prompt; all arrays are (rows, heads, tokens, size)."""
    layout = _layout.get()
    unknown = {"softcap", "s_aux", "position_bias"}.intersection(
        name for name, option in options.items() if option is not None
    )
    if layout is None or unknown:
        raise NotImplementedError(f"packed attention does not know {', '.join(unknown)}")
    length, count = layout.length, len(layout.examples)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    rows, heads, _, size = query.shape

    def by_example(states: torch.Tensor) -> torch.Tensor:
        # (rows · examples, heads, longest, size)
        padded = states.index_select(2, layout.padded).view(rows, heads, count, -1, size)
        return padded.transpose(1, 2).reshape(rows * count, heads, -1, size)

    def behind_prompt(states: torch.Tensor) -> torch.Tensor:
        # (rows · examples, heads, length + longest, size)
        prompt = states[:, None, :, :length].expand(-1, count, -1, -1, -1)
        own = by_example(states).view(rows, count, heads, -1, states.shape[-1])
        return torch.cat([prompt, own], dim=3).flatten(0, 1)

    attended = scaled_dot_product_attention(
        by_example(query),
        behind_prompt(key),
        behind_prompt(value),
        attn_mask=layout.visible.repeat(rows, 1, 1, 1),
        scale=scaling,
    )
    width = attended.shape[-1]
    attended = attended.view(rows, count, heads, -1, width).transpose(1, 2).flatten(2, 3)
    output = torch.empty(rows, query.shape[2], heads, width, dtype=query.dtype, device=query.device)
    output[:, length:] = attended.index_select(2, layout.packed).transpose(1, 2)
    if length:
        output[:, :length] = scaled_dot_product_attention(
            query[:, :, :length],
            key[:, :, :length],
            value[:, :, :length],
            is_causal=True,
            scale=scaling,
        ).transpose(1, 2)
    return output, None


def _no_mask(*_args: Any, **_options: Any) -> None:
    """Stand in for the mask, which the layout holds."""


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)
