"""Causal models without a wasted token: the prompt once, then the examples in one row.

A row is `prompt, example 1, example 2, …` without padding. Tokens that all examples begin with,
such as the first words of the template, stand once after the prompt. All layers but attention work
on single tokens, so the layout makes no difference to them. Attention is computed in blocks, so
that each example sees the prompt, the common tokens and itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from pfes.contract import Batch, Texts
from pfes.models.local.attention import AttentionInputs, attending
from pfes.models.local.last_layer import ReadPositions, read_at
from pfes.models.local.padded import Pass

# Fixed cost of a block of attention, in multiply-adds of one head; measured on a CPU
BLOCK_COST = 2000


@dataclass(frozen=True)
class Block:
    """Neighbouring examples of like length, which attend together, padded to the longest."""

    start: int  # index of its first token in the row
    stop: int  # index after its last token
    count: int  # examples
    padded: torch.Tensor  # (examples · longest,) for each padded token, its index in the row
    packed: torch.Tensor  # (tokens,) the inverse: for each token, its index among the padded ones
    visible: torch.Tensor  # (examples, longest, length + longest) 0 where seen, else −inf
    masks: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    copies: "dict[torch.device, Block]" = field(default_factory=dict)

    def on(self, device: torch.device) -> "Block":
        """Return this block on a device: the layers of one model may be on several."""
        if device == self.visible.device:
            return self
        if device not in self.copies:
            padded, packed, visible = (
                tensor.to(device) for tensor in (self.padded, self.packed, self.visible)
            )
            self.copies[device] = Block(self.start, self.stop, self.count, padded, packed, visible)
        return self.copies[device]

    def mask(self, rows: int, groups: int) -> torch.Tensor:
        """Return the mask for queries whose heads of a group are stacked along the tokens."""
        if (rows, groups) not in self.masks:
            self.masks[rows, groups] = self.visible.repeat(rows, groups, 1)[:, None]
        return self.masks[rows, groups]

    def attend(self, inputs: AttentionInputs, length: int) -> torch.Tensor:
        """Attend within each example and to the prompt, `(rows, tokens, heads, size)`."""
        _, query, key, value, scale = inputs
        rows, heads, _, size = query.shape
        shared = key.shape[1]  # heads that have keys; the others share them
        groups, longest = heads // shared, len(self.padded) // self.count

        def own(states: torch.Tensor) -> torch.Tensor:
            # (rows, heads, examples, longest, size of the states)
            by_example = states.index_select(2, self.padded)
            return by_example.view(rows, -1, self.count, longest, states.shape[-1])

        def behind_prompt(states: torch.Tensor) -> torch.Tensor:
            # (rows · examples, shared, length + longest, size)
            prompt = states[:, None, :, :length].expand(-1, self.count, -1, -1, -1)
            return torch.cat([prompt, own(states).transpose(1, 2)], dim=3).flatten(0, 1)

        queries = own(query).view(rows, shared, groups, self.count, longest, size)
        attended = scaled_dot_product_attention(
            queries.permute(0, 3, 1, 2, 4, 5).reshape(rows * self.count, shared, -1, size),
            behind_prompt(key),
            behind_prompt(value),
            attn_mask=self.mask(rows, groups),
            scale=scale,
        )
        width = attended.shape[-1]
        attended = attended.reshape(rows, self.count, shared, groups, longest, width)
        by_token = attended.permute(0, 1, 4, 2, 3, 5).reshape(rows, -1, heads, width)
        return by_token.index_select(1, self.packed)


@dataclass(frozen=True)
class Layout:
    """How a packed row is laid out, and how its tokens attend to each other."""

    length: int  # of what all examples see: the prompt and the common tokens
    examples: list[int]
    text: torch.Tensor  # (tokens, width) embedded: the common tokens, then example by example
    positions: torch.Tensor  # (prompt + tokens,)
    answers: torch.Tensor  # (examples,) indices in the row
    blocks: list[Block]

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Attend block by block, and within what all examples see."""
        _, query, key, value, scale = inputs
        rows, heads, tokens, _ = query.shape
        length, groups = self.length, heads // key.shape[1]
        output = query.new_empty(rows, tokens, heads, value.shape[-1])
        for block in self.blocks:
            output[:, block.start : block.stop] = block.on(query.device).attend(inputs, length)
        if length:
            first = scaled_dot_product_attention(
                query[:, :, :length],
                key[:, :, :length].repeat_interleave(groups, 1),
                value[:, :, :length].repeat_interleave(groups, 1),
                is_causal=True,
                scale=scale,
            )
            output[:, :length] = first.transpose(1, 2)
        return output


class PackedEvaluator:
    """Evaluates prompts in front of the text, several in one pass where they fit.

    What depends on the examples only is prepared once and kept as long as its texts live.
    """

    def __init__(self, module: Any, parts: list[torch.nn.Module]) -> None:
        self._module = module
        self._parts = parts
        self._layouts: WeakKeyDictionary[Texts, dict[tuple[int, int], list[Layout]]] = (
            WeakKeyDictionary()
        )

    def passes(self, soft: torch.Tensor, batch: Batch, max_tokens: int) -> Iterator[Pass]:
        """Evaluate prompts `soft` (candidates, length, width)."""
        for layout in self.layouts(batch, soft.shape[1], max_tokens):
            together = max(1, max_tokens // len(layout.positions))
            for start in range(0, len(soft), together):
                prompts = soft[start : start + together]
                candidates = np.arange(start, start + len(prompts))
                examples = layout.examples
                pairs = (np.repeat(candidates, len(examples)), np.tile(examples, len(prompts)))
                yield pairs, self.logits(prompts, layout)

    def layouts(self, batch: Batch, length: int, max_tokens: int) -> list[Layout]:
        """Return the packed rows of a batch after a prompt of some length."""
        kept = self._layouts.setdefault(batch.texts, {})
        if (length, max_tokens) not in kept:
            embedding = self._module.get_input_embeddings()
            common = common_tokens(batch)
            kept[length, max_tokens] = [
                _make_layout(batch, examples, common, length, embedding)
                for examples in _groups(batch, common, max_tokens - length)
            ]
        return kept[length, max_tokens]

    def logits(self, prompts: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Return the logits at the answers, `(candidates · examples, vocabulary)`."""
        rows = torch.cat([prompts, layout.text.expand(len(prompts), -1, -1)], dim=1)
        read_positions = ReadPositions((len(rows), rows.shape[1]), layout.answers)
        with (
            attending(self._module, layout),
            read_at(self._module, read_positions, self._parts) as finish,
        ):
            output = self._module(
                inputs_embeds=rows,
                position_ids=layout.positions.expand(len(prompts), -1),
                use_cache=False,
            )
            return finish(output.logits).flatten(0, 1)


def common_tokens(batch: Batch) -> int:
    """Return how many tokens all examples begin with, before any answer is read."""
    columns = zip(*batch.token_ids, strict=False)
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return min(alike, *batch.answers)


def _groups(batch: Batch, common: int, max_tokens: int) -> Iterator[list[int]]:
    """Divide the examples, shortest first, into as few rows of similar size as the limit allows."""
    sizes = [len(row) - common for row in batch.token_ids]
    room = max(1, max_tokens - common)
    share = sum(sizes) / -(-sum(sizes) // room)  # tokens of each row if all were equal
    group: list[int] = []
    used = 0
    for i in np.argsort(sizes, kind="stable").tolist():
        if group and (used + sizes[i] > room or used + sizes[i] / 2 > share):
            yield group
            group, used = [], 0
        group.append(i)
        used += sizes[i]
    yield group


def _make_layout(
    batch: Batch, examples: list[int], common: int, prompt_length: int, embedding: Any
) -> Layout:
    device, dtype = embedding.weight.device, embedding.weight.dtype
    length = prompt_length + common
    rows = [batch.token_ids[i][common:] for i in examples]
    sizes = [len(row) for row in rows]
    starts = np.cumsum([length, *sizes])[:-1].tolist()
    positions = [*range(length), *(length + offset for size in sizes for offset in range(size))]
    offsets = [batch.answers[i] - common for i in examples]
    answers = [start + offset for start, offset in zip(starts, offsets, strict=True)]
    blocks = [
        _make_block(sizes[first:last], starts[first:last], length, device, dtype)
        for first, last in _blocks(sizes, length)
    ]
    tokens = [*batch.token_ids[0][:common], *(token for row in rows for token in row)]
    return Layout(
        length,
        examples,
        embedding(torch.tensor(tokens, device=device)),
        torch.tensor(positions, device=device),
        torch.tensor(answers, device=device),
        blocks,
    )


def _blocks(sizes: list[int], length: int) -> list[tuple[int, int]]:
    """Divide ascending sizes into blocks with the least padding and fixed cost together."""
    best: list[tuple[float, int]] = [(0.0, 0)]  # by count: least cost, start of the last block
    for last, size in enumerate(sizes, start=1):
        costs = [
            (best[first][0] + (last - first) * size * (length + size) + BLOCK_COST, first)
            for first in range(last)
        ]
        best.append(min(costs))
    parts = []
    last = len(sizes)
    while last:
        parts.append((best[last][1], last))
        last = best[last][1]
    return parts[::-1]


def _make_block(
    sizes: list[int], starts: list[int], length: int, device: torch.device, dtype: torch.dtype
) -> Block:
    longest = max(sizes)
    steps = torch.arange(longest)
    begin = torch.tensor(starts)[:, None]
    real = steps < torch.tensor(sizes)[:, None]  # (examples, longest)
    # padding repeats the example's first token: attention computes it, nobody reads it
    padded = torch.where(real, begin + steps, begin)
    packed = [i * longest + step for i, size in enumerate(sizes) for step in range(size)]
    visible = torch.zeros(len(sizes), longest, length + longest, dtype=dtype)
    visible[..., length:] = torch.full((longest, longest), -torch.inf).triu(1)
    return Block(
        starts[0],
        starts[-1] + sizes[-1],
        len(sizes),
        padded.flatten().to(device),
        torch.tensor(packed, device=device),
        visible.to(device),
    )
