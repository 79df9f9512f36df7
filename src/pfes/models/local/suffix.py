"""Prompts behind the text: the text's keys and values never change, so they are computed once.

A pass then consists of the prompts only, a row for each candidate with its prompt once per example;
attention looks back at the kept keys and values. So the length of the texts hardly matters to the
cost of an evaluation. Candidates that share a pass look back together: what is kept is read once
for all. What all texts begin with, such as answered examples in front, is kept once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from pfes.contract import Batch, Texts
from pfes.models.local.attention import AttentionInputs, attending
from pfes.models.local.last_layer import Readout, ReadPositions
from pfes.models.local.packed import Layout, PackedEvaluator, common_tokens
from pfes.models.local.padded import Pass
from pfes.system.memory import available_memory

MEMORY_SHARE = 0.25  # of the free memory, at most, for the keys and values of all texts together
EXAMPLES = 64  # in a pass, at most: longer ones keep company, so that little is padding
TOGETHER = (
    4  # candidates in a pass, at most: attention computes, in vain, how they would see others
)
LEAST_COMMON = 16  # tokens that all texts begin with, for keeping them apart to be worth it


KeysAndValues = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class _Filling:
    """Attends like a packed row of text, and keeps the keys and values of each layer.

    It may stand behind tokens whose keys and values, `(heads, tokens, size)`, are there already.
    """

    layout: Layout
    before: dict[Any, KeysAndValues]
    kept: dict[Any, KeysAndValues] = field(default_factory=dict)

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        layer, query, key, value, _ = inputs
        self.kept[layer] = (key, value)
        if layer not in self.before:
            return self.layout.attend(inputs)
        keys, values = self.before[layer]
        count = keys.shape[1]
        row = inputs._replace(
            query=torch.nn.functional.pad(query, (0, 0, count, 0)),
            key=torch.cat([keys[None], key], dim=2),
            value=torch.cat([values[None], value], dim=2),
        )
        return self.layout.attend(row)[:, count:]


@dataclass(frozen=True)
class _Texts:
    """The keys and values of some examples' texts, and how prompts attend to them."""

    examples: list[int]
    length: int  # of the prompts
    longest: int  # tokens of a text, without those that are kept apart
    together: int  # candidates that have room in the memory
    common: dict[Any, KeysAndValues]  # by layer: (heads, tokens that all texts begin with, size)
    # by layer: (heads, examples, longest + together · length, size); behind the texts, every pass
    # writes what its prompts add
    memory: dict[Any, KeysAndValues]
    positions: torch.Tensor  # (examples · length,)
    visible: torch.Tensor  # (examples, longest) 0 where there is text, else −inf
    masks: dict[tuple[int, int, torch.device], torch.Tensor] = field(default_factory=dict)

    def mask(self, candidates: int, groups: int, device: torch.device) -> torch.Tensor:
        """Return the mask for the queries of an example: by candidate, head of a group, and token.

        The layers of one model may be on several devices.
        """
        if (candidates, groups, device) not in self.masks:
            length = self.length
            causal = self.visible.new_full((length, length), -torch.inf).triu(1)
            own = self.visible.new_full((candidates, length, candidates, length), -torch.inf)
            for candidate in range(candidates):
                own[candidate, :, candidate] = causal
            seen = own.flatten(2)[:, None].expand(-1, groups, -1, -1).flatten(0, 2)
            text = self.visible[:, None].expand(-1, len(seen), -1)
            mask = torch.cat([text, seen.expand(len(text), -1, -1)], dim=2)
            self.masks[candidates, groups, device] = mask.to(device)
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
            own = by_candidate.permute(1, 2, 0, 3, 4).flatten(2, 3)
            if torch.is_grad_enabled():  # the way back needs what every pass has seen
                seen.append(torch.cat([kept[:, :, : self.longest], own], dim=2))
            else:
                kept[:, :, self.longest : stop] = own
                seen.append(kept[:, :, :stop])
        by_head = query.view(candidates, shared, groups, count, length, size)
        # (heads that share keys, examples, candidates · groups · length, size)
        queries = by_head.permute(1, 3, 0, 2, 4, 5).flatten(2, 4)
        mask, (keys, values) = self.mask(candidates, groups, query.device), seen
        if layer in self.common:
            attended = _attend_twice(queries, self.common[layer], (keys, values), mask, scale)
        else:
            attended = scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, scale=scale
            )
        by_token = attended.view(shared, count, candidates, groups, length, -1)
        return by_token.permute(2, 1, 4, 0, 3, 5).reshape(candidates, count * length, heads, -1)


def _attend_twice(
    queries: torch.Tensor,
    common: KeysAndValues,
    own: KeysAndValues,
    mask: torch.Tensor,
    scale: float | None,
) -> torch.Tensor:
    """Attend to what all examples see, in one product for all of them, and to their own tokens."""
    size = queries.shape[-1]
    factor = size**-0.5 if scale is None else scale
    queries = queries * factor
    # products may be in half precision, sums are not
    to_common = (queries.flatten(1, 2) @ common[0].transpose(-1, -2)).float()
    to_common = to_common.view(*queries.shape[:3], -1)
    to_own = (queries @ own[0].transpose(-1, -2)).float() + mask.float()
    highest = torch.maximum(to_common.amax(-1, keepdim=True), to_own.amax(-1, keepdim=True))
    to_common, to_own = (to_common - highest).exp_(), (to_own - highest).exp_()
    total = to_common.sum(-1, keepdim=True) + to_own.sum(-1, keepdim=True)
    from_common = to_common.to(queries.dtype).flatten(1, 2) @ common[1]
    from_own = to_own.to(queries.dtype) @ own[1]
    both = from_common.view(*from_own.shape).float() + from_own.float()
    return (both / total).to(queries.dtype)


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
        others = sum(
            _nbytes(texts) for by_size in self._texts.values() for texts in by_size.values()
        )
        room = (available_memory(soft.device) + others) * MEMORY_SHARE - others
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
                if _nbytes(keep) > room:
                    keep = None  # too large: recomputed each time
        if keep is not None:
            kept[length, max_tokens] = keep

    def _remember(self, batch: Batch, length: int, max_tokens: int) -> Iterator[_Texts]:
        """Compute the texts' keys and values, for as many examples at a time as one pass takes."""
        apart = common_tokens(batch)  # tokens that are kept apart
        apart = apart if apart >= LEAST_COMMON and len(batch) > 1 else 0
        common = self._keep(batch.token_ids[0][:apart])
        own = replace(
            batch,
            token_ids=tuple(row[apart:] for row in batch.token_ids),
            answers=tuple(answer - apart for answer in batch.answers),
        )
        most = max(1, min(EXAMPLES, max_tokens // length))
        order = np.argsort([len(row) for row in batch.token_ids], kind="stable")
        for examples in np.array_split(order, -(-len(order) // most)):
            yield self._fill(own, examples.tolist(), apart, common, length, max_tokens)

    def _fill(
        self,
        batch: Batch,
        examples: list[int],
        apart: int,
        common: dict[Any, KeysAndValues],
        length: int,
        max_tokens: int,
    ) -> _Texts:
        """Compute the keys and values of some texts, which stand behind `apart` common tokens."""
        own = batch.take(examples)
        sizes = np.array([len(row) for row in own.token_ids])
        longest = int(sizes.max())
        together = max(1, min(TOGETHER, max_tokens // (len(examples) * length)))
        room = longest + together * length
        memory: dict[Any, KeysAndValues] = {}
        for layout in self._packed.layouts(own, apart, max_tokens):
            filling = _Filling(layout, common)
            self._run(layout.text[None], layout.positions[apart:], layout.answers - apart, filling)
            for layer, states in filling.kept.items():
                if layer not in memory:
                    memory[layer] = tuple(  # type: ignore[assignment]
                        s.new_zeros(s.shape[1], len(examples), room, s.shape[3]) for s in states
                    )
                start = again = layout.length - apart  # these few are kept with each example
                for i in layout.examples:
                    stop = start + sizes[i] - again
                    for target, state in zip(memory[layer], states, strict=True):
                        target[:, i, :again] = state[0, :, :again]
                        target[:, i, again : sizes[i]] = state[0, :, start:stop]
                    start = stop
        device = layout.positions.device
        positions = torch.from_numpy(apart + sizes)[:, None] + torch.arange(length)
        visible = torch.zeros(len(examples), longest, dtype=layout.text.dtype)
        padding = torch.arange(longest) >= torch.from_numpy(sizes)[:, None]
        visible.masked_fill_(padding, -torch.inf)
        return _Texts(
            examples, length, longest, together, common, memory, positions.flatten().to(device),
            visible,
        )  # fmt: skip

    def _keep(self, tokens: tuple[int, ...]) -> dict[Any, KeysAndValues]:
        """Compute the keys and values of tokens with nothing before them, by layer."""
        if not tokens:
            return {}
        embedding = self._module.get_input_embeddings()
        ids = torch.tensor(tokens, device=embedding.weight.device)
        count, steps = len(tokens), torch.arange(len(tokens), device=ids.device)
        filling = _Filling(Layout(count, [], embedding(ids), steps, steps[-1:], []), {})
        self._run(filling.layout.text[None], steps, steps[-1:], filling)
        return {layer: (keys[0], values[0]) for layer, (keys, values) in filling.kept.items()}

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


def _nbytes(parts: list[_Texts]) -> int:
    """Return the memory that keys and values take, where parts may have some in common."""
    pairs = [pair for part in parts for pair in (*part.common.values(), *part.memory.values())]
    tensors = {id(tensor): tensor for pair in pairs for tensor in pair}
    return sum(tensor.nbytes for tensor in tensors.values())
