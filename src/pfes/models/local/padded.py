"""The plain path: every (candidate, example) pair is a row, padded on the right."""

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.contract import Batch, Family
from pfes.models.local.last_layer import Readout, ReadPositions

Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # candidates, examples
Pass: TypeAlias = tuple[Pairs, torch.Tensor]  # with their logits, (pairs, vocabulary)


def padded_passes(
    module: Any,
    family: Family,
    soft: torch.Tensor,
    batch: Batch,
    max_tokens: int,
    readout: Readout | None = None,
    alike: bool = False,
) -> Iterator[Pass]:
    """Evaluate prompts `soft` (candidates, length, width) in passes of like length.

    Padding is on the right and masked, so positions are those of an unpadded row. With `alike`,
    only rows of the same length share a pass: some models see padding.
    """
    readout = readout or Readout(module)
    sizes = np.array([len(row) + soft.shape[1] for row in batch.token_ids])
    for candidates, examples in _chunks(sizes, len(soft), max_tokens, alike):
        prompts = soft[torch.from_numpy(candidates).to(soft.device)]  # (rows, length, width)
        logits = _logits(module, family, prompts, batch.take(examples), readout)
        yield (candidates, examples), logits


def _chunks(
    sizes: NDArray[np.int64], candidates: int, max_tokens: int, alike: bool
) -> Iterator[Pairs]:
    order = np.argsort(sizes, kind="stable")
    examples = np.repeat(order, candidates)
    which = np.tile(np.arange(candidates), len(order))
    start = 0
    for stop in range(1, len(examples) + 1):
        # sizes ascend, so the row at `stop` would be the longest of its pass
        size = sizes[examples[stop]] if stop < len(examples) else math.inf
        padding = alike and size != sizes[examples[start]]
        if padding or (stop + 1 - start) * size > max_tokens:
            yield which[start:stop], examples[start:stop]
            start = stop


def _logits(
    module: Any,
    family: Family,
    prompts: torch.Tensor,
    batch: Batch,
    readout: Readout,
) -> torch.Tensor:
    """Evaluate one prompt with each example."""
    length, device = prompts.shape[1], prompts.device
    sizes = torch.tensor([len(row) for row in batch.token_ids])
    longest = int(sizes.max())
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    for i, row in enumerate(batch.token_ids):
        ids[i, : len(row)] = torch.tensor(row)
    answers = torch.tensor(batch.answers)
    if batch.placement == "suffix":
        front = sizes  # the prompt follows the text, and a causal model's answer behind it
        where = sizes + length - 1 if length and family == "causal" else answers
    else:
        # a masked model's prompt goes behind its first special token, a causal model's in front
        front = torch.full_like(sizes, 1 if family == "masked" else 0)
        where = answers + length * (answers >= front)
    source, mask = place_prompt(sizes, front, length, longest)
    text = module.get_input_embeddings()(ids.to(device))  # (rows, longest, width)
    both = torch.cat([text, prompts], dim=1)
    rows = torch.arange(len(batch), device=device)
    read_positions = ReadPositions((len(batch), length + longest), where, by_row=True)
    with readout.at(read_positions) as finish:
        output = module(
            inputs_embeds=both[rows[:, None], source.to(device)],
            attention_mask=mask.long().to(device),
            **({"use_cache": False} if family == "causal" else {}),
        )
        return finish(output.logits)[:, 0]


def place_prompt(
    sizes: torch.Tensor, front: torch.Tensor, length: int, longest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay out rows of `sizes` tokens with a prompt behind the first `front` tokens of each.

    Return, for each position of a row, the index of its source in `longest` text tokens followed by
    the prompt, and whether it is real rather than padding; both `(rows, length + longest)`.
    """
    # each position takes the text before the prompt, the prompt, or the text after it
    position = torch.arange(length + longest, device=sizes.device).expand(len(sizes), -1)
    behind = position >= (front + length)[:, None]
    within = (position >= front[:, None]) & ~behind
    source = torch.where(
        within, longest + position - front[:, None], position - length * behind.long()
    )
    return source, position < (sizes + length)[:, None]
