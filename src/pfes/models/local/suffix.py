"""Prompts behind the text: the text's keys and values never change, so they are computed once.

A pass then consists of the prompts only, a row for each candidate with its prompt once per example;
attention looks back at the kept keys and values. So the length of the texts hardly matters to the cost
of an evaluation. Candidates that share a pass look back together: what is kept is read once for all.
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
from pfes.models.local.last_layer import Readout, ReadPositions
from pfes.models.local.packed import Layout, PackedEvaluator
from pfes.models.local.padded import Pass
from pfes.system.memory import available_memory

MEMORY_SHARE = 0.25  # of the free memory, at most, for keys and values
TOGETHER = 4  # candidates in a pass, at most: attention computes, in vain, how they would see others


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
    longest: int  # tokens of a text
    together: int  # candidates that have room in the memory
    # by layer: (examples, heads, longest + together · length, size); behind the texts, every pass
    # writes what its prompts add
    memory: dict[Any, tuple[torch.Tensor, torch.Tensor]]
    positions: torch.Tensor  # (examples · length,)
    visible: torch.Tensor  # (examples, longest) 0 where there is text, else −inf
    masks: dict[tuple[int, int, torch.device], torch.Tensor] = field(default_factory=dict)

    def mask(self, candidates: int, groups: int, device: torch.device) -> torch.Tensor:
        """Return the mask for the queries of an example: by candidate, head of a group, and token.

        The layers of one model may be on several devices.
        """
        if (candidates, groups, device) not in self.masks:
            causal = self.visible.new_full((self.length, self.length), -torch.inf).triu(1)
            own = self.visible.new_full((candidates, self.length, candidates, self.length), -torch.inf)
            for candidate in range(candidates):
                own[candidate, :, candidate] = causal
            seen = own.flatten(2)[:, None].expand(-1, groups, -1, -1).flatten(0, 2)
            text = self.visible[:, None].expand(-1, len(seen), -1)
            mask = torch.cat([text, seen.expand(len(text), -1, -1)], dim=2)
            self.masks[candidates, groups, device] = mask[:, None].to(device)
        return self.masks[candidates, groups, device]

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Attend to the example's own text and to the candidate's own prompt."""
        layer, query, key, value, scale = inputs
        candidates, heads, _, size = query.shape
        shared, count, length = key.shape[1], len(self.examples), self.length
        groups, stop = heads // shared, self.longest + candidates * length
        seen: list[torch.Tensor] = []
        for kept, states in zip(self.memory[layer], (key, value), strict=True):
            by_candidate = states.view(candidates, shared, count, length, states.shape[-1])
            own = by_candidate.permute(2, 1, 0, 3, 4).flatten(2, 3)
            if torch.is_grad_enabled():  # the way back needs what every pass has seen
                seen.append(torch.cat([kept[:, :, : self.longest], own], dim=2))
            else:
                kept[:, :, self.longest : stop] = own
                seen.append(kept[:, :, :stop])
        by_head = query.view(candidates, shared, groups, count, length, size)
        keys, values = seen
        attended = scaled_dot_product_attention(
            by_head.permute(3, 1, 0, 2, 4, 5).flatten(2, 4),
            keys,
            values,
            attn_mask=self.mask(candidates, groups, query.device),
            scale=scale,
        )
        by_token = attended.view(count, shared, candidates, groups, length, -1)
        return by_token.permute(2, 0, 4, 1, 3, 5).reshape(candidates, count * length, heads, -1)


class SuffixEvaluator:
    """Evaluates prompts behind the text, a few candidates per pass."""

    def __init__(self, module: Any, readout: Readout) -> None:
        self._module = module
        self._readout = readout
        self._packed = PackedEvaluator(module, readout)
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
            examples = texts.examples
            for start in range(0, len(soft), texts.together):
                prompts = soft[start : start + texts.together]
                candidates = np.arange(start, start + len(prompts))
                pairs = (np.repeat(candidates, len(examples)), np.tile(examples, len(prompts)))
                yield pairs, self._logits(prompts, texts)
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
        together = max(1, min(TOGETHER, max_tokens // (len(examples) * length)))
        room = longest + together * length
        memory: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        for layout in self._packed.layouts(part, 0, max_tokens):
            filling = _Filling(layout, {})
            self._run(layout.text[None], layout.positions, layout.answers, filling)
            for layer, states in filling.kept.items():
                if layer not in memory:
                    memory[layer] = tuple(  # type: ignore[assignment]
                        s.new_zeros(len(examples), s.shape[1], room, s.shape[3]) for s in states
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
        visible = torch.zeros(len(examples), longest, dtype=layout.text.dtype)
        visible.masked_fill_(torch.arange(longest) >= torch.from_numpy(sizes)[:, None], -torch.inf)
        return _Texts(
            examples, length, longest, together, memory, positions.flatten().to(device), visible
        )

    def _logits(self, prompts: torch.Tensor, texts: _Texts) -> torch.Tensor:
        """Return the logits at the answers, `(candidates · examples, vocabulary)`."""
        count, length = len(texts.examples), texts.length
        answers = torch.arange(1, count + 1, device=prompts.device) * length - 1
        return self._run(prompts.repeat(1, count, 1), texts.positions, answers, texts)

    def _run(
        self,
        rows: torch.Tensor,
        positions: torch.Tensor,
        answers: torch.Tensor,
        plan: Any,
    ) -> torch.Tensor:
        read_positions = ReadPositions((len(rows), rows.shape[1]), answers)
        with (
            attending(self._module, plan),
            self._readout.at(read_positions) as finish,
        ):
            output = self._module(
                inputs_embeds=rows,
                position_ids=positions.expand(len(rows), -1),
                use_cache=False,
            )
            return finish(output.logits).flatten(0, 1)


def _bytes(texts: list[_Texts]) -> int:
    return sum(tensor.nbytes for part in texts for pair in part.memory.values() for tensor in pair)
