"""Prompts behind the text: the text's keys and values never change, so they are computed once.

A pass then consists of the prompts only, one per example, in one row; attention looks back at the
kept keys and values. So the length of the texts hardly matters to the cost of an evaluation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from pfes.contract import Batch, Texts
from pfes.models.local.attention import AttentionInputs, attending
from pfes.models.local.last_layer import ReadPositions, read_at
from pfes.models.local.packed import Layout, PackedEvaluator
from pfes.models.local.padded import Pass
from pfes.system.memory import available_memory

MEMORY_SHARE = 0.25  # of the free memory, at most, for keys and values


@dataclass(frozen=True)
class _Filling:
    """Attends like a packed row of text, and keeps the keys and values of each layer."""

    layout: Layout
    kept: dict[Any, tuple[torch.Tensor, torch.Tensor]]

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        self.kept[inputs.layer] = (inputs.key, inputs.value)
        return self.layout.attend(inputs)


@dataclass(frozen=True)
class _Texts:
    """The keys and values of some examples' texts, and how prompts attend to them."""

    examples: list[int]
    length: int  # of the prompts
    # by layer: (examples, heads, longest + length, size); every pass rewrites the last `length`
    memory: dict[Any, tuple[torch.Tensor, torch.Tensor]]
    positions: torch.Tensor  # (examples · length,)
    visible: torch.Tensor  # (examples, length, longest + length) 0 where seen, else −inf
    masks: dict[tuple[int, torch.device], torch.Tensor] = field(default_factory=dict)

    def mask(self, groups: int, device: torch.device) -> torch.Tensor:
        """Return the mask for queries whose heads of a group are stacked along the tokens.

        The layers of one model may be on several devices.
        """
        if (groups, device) not in self.masks:
            mask = self.visible.repeat(1, groups, 1)[:, None]
            self.masks[groups, device] = mask.to(device)
        return self.masks[groups, device]

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Attend to the example's own text and prompt; there is one row."""
        layer, query, key, value, scale = inputs
        heads, size = query.shape[1], query.shape[3]
        shared, count, length = key.shape[1], len(self.examples), self.length
        groups = heads // shared
        seen: list[torch.Tensor] = []
        for kept, states in zip(self.memory[layer], (key, value), strict=True):
            by_example = states[0].reshape(shared, count, length, states.shape[-1]).transpose(0, 1)
            if torch.is_grad_enabled():  # the way back needs what every pass has seen
                seen.append(torch.cat([kept[:, :, :-length], by_example], dim=2))
            else:
                kept[:, :, -length:] = by_example
                seen.append(kept)
        queries = query[0].reshape(shared, groups, count, length, size).permute(2, 0, 1, 3, 4)
        keys, values = seen
        attended = scaled_dot_product_attention(
            queries.reshape(count, shared, groups * length, size),
            keys,
            values,
            attn_mask=self.mask(groups, query.device),
            scale=scale,
        )
        attended = attended.view(count, shared, groups, length, -1).permute(0, 3, 1, 2, 4)
        return attended.reshape(1, count * length, heads, -1)


class SuffixEvaluator:
    """Evaluates prompts behind the text, one candidate per pass."""

    def __init__(self, module: Any, parts: list[torch.nn.Module]) -> None:
        self._module = module
        self._parts = parts
        self._packed = PackedEvaluator(module, parts)
        self._texts: WeakKeyDictionary[Texts, dict[tuple[int, int], list[_Texts]]] = (
            WeakKeyDictionary()
        )

    def passes(self, soft: torch.Tensor, batch: Batch, max_tokens: int) -> Iterator[Pass]:
        """Evaluate prompts `soft` (candidates, length, width); length is at least 1."""
        length = soft.shape[1]
        kept = self._texts.setdefault(batch.texts, {})
        if (length, max_tokens) in kept:
            remembered: Iterator[_Texts] | list[_Texts] = kept[length, max_tokens]
        else:
            remembered = self._remember(batch, length, max_tokens)
        room = available_memory(soft.device) * MEMORY_SHARE
        keep: list[_Texts] | None = []
        for texts in remembered:
            for candidate, prompt in enumerate(soft):
                pairs = (np.full(len(texts.examples), candidate), np.array(texts.examples))
                yield pairs, self._logits(prompt, texts)
            if keep is not None:
                keep.append(texts)
                keep = keep if _bytes(keep) <= room else None  # too large: recomputed each time
        if keep is not None:
            kept[length, max_tokens] = keep

    def _remember(self, batch: Batch, length: int, max_tokens: int) -> Iterator[_Texts]:
        """Compute the texts' keys and values, for as many examples at a time as one pass takes."""
        count = max(1, max_tokens // length)
        order = np.argsort([len(row) for row in batch.token_ids], kind="stable").tolist()
        for start in range(0, len(order), count):
            yield self._fill(batch, order[start : start + count], length, max_tokens)

    def _fill(self, batch: Batch, examples: list[int], length: int, max_tokens: int) -> _Texts:
        part = batch.take(examples)
        sizes = np.array([len(row) for row in part.token_ids])
        longest = int(sizes.max())
        memory: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        for layout in self._packed.layouts(part, 0, max_tokens):
            filling = _Filling(layout, {})
            self._run(layout.text, layout.positions, layout.answers, filling)
            for layer, states in filling.kept.items():
                if layer not in memory:
                    memory[layer] = tuple(  # type: ignore[assignment]
                        s.new_zeros(len(examples), s.shape[1], longest + length, s.shape[3])
                        for s in states
                    )
                start = common = layout.length
                for i in layout.examples:
                    stop = start + sizes[i] - common
                    for target, state in zip(memory[layer], states, strict=True):
                        target[i, :, :common] = state[0, :, :common]
                        target[i, :, common : sizes[i]] = state[0, :, start:stop]
                    start = stop
        device = layout.positions.device
        steps = torch.arange(length)
        positions = torch.from_numpy(sizes)[:, None] + steps
        visible = torch.zeros(len(examples), length, longest + length, dtype=layout.text.dtype)
        visible[:, :, :longest].masked_fill_(
            (torch.arange(longest) >= torch.from_numpy(sizes)[:, None])[:, None], -torch.inf
        )
        visible[:, :, longest:] = torch.full((length, length), -torch.inf).triu(1)
        return _Texts(examples, length, memory, positions.flatten().to(device), visible.to(device))

    def _logits(self, prompt: torch.Tensor, texts: _Texts) -> torch.Tensor:
        count, length = len(texts.examples), texts.length
        answers = torch.arange(1, count + 1, device=prompt.device) * length - 1
        return self._run(prompt.repeat(count, 1), texts.positions, answers, texts)

    def _run(
        self,
        rows: torch.Tensor,
        positions: torch.Tensor,
        answers: torch.Tensor,
        plan: Any,
    ) -> torch.Tensor:
        read_positions = ReadPositions((1, len(rows)), answers)
        with (
            attending(self._module, plan),
            read_at(self._module, read_positions, self._parts) as finish,
        ):
            output = self._module(
                inputs_embeds=rows[None],
                position_ids=positions[None],
                use_cache=False,
            )
            return finish(output.logits)[0]


def _bytes(texts: list[_Texts]) -> int:
    return sum(tensor.nbytes for part in texts for pair in part.memory.values() for tensor in pair)
