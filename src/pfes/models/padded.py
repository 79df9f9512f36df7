"""The plain way to evaluate: every (candidate, example) pair is a row, padded on the right."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.models.head import head_at
from pfes.tasks.batch import Batch
from pfes.tasks.spec import Family

Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # candidates, examples
Pass: TypeAlias = tuple[Pairs, torch.Tensor]  # with their logits, (pairs, vocabulary)


def padded_passes(
    module: Any, family: Family, soft: torch.Tensor, batch: Batch, max_tokens: int
) -> Iterator[Pass]:
    """Evaluate prompts `soft` (candidates, length, width) in passes of like length.

    Padding is on the right and masked, so positions are those of an unpadded row.
    """
    sizes = np.array([len(row) + soft.shape[1] for row in batch.token_ids])
    for candidates, examples in _chunks(sizes, len(soft), max_tokens):
        yield (candidates, examples), _logits(module, family, soft, batch, candidates, examples)


def _chunks(sizes: NDArray[np.int64], candidates: int, max_tokens: int) -> Iterator[Pairs]:
    order = np.argsort(sizes, kind="stable")
    examples = np.repeat(order, candidates)
    which = np.tile(np.arange(candidates), len(order))
    start = 0
    for stop in range(1, len(examples) + 1):
        # sizes ascend, so the row at `stop` would be the longest of its pass
        full = stop < len(examples) and (stop + 1 - start) * sizes[examples[stop]] > max_tokens
        if full or stop == len(examples):
            yield which[start:stop], examples[start:stop]
            start = stop


def _logits(
    module: Any,
    family: Family,
    soft: torch.Tensor,
    batch: Batch,
    candidates: NDArray[np.int64],
    examples: NDArray[np.int64],
) -> torch.Tensor:
    length, device = soft.shape[1], soft.device
    # a masked model's prompt goes behind its first special token, a causal model's in front
    front = 1 if family == "masked" else 0
    rows = [batch.token_ids[i] for i in examples]
    ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
    seen = torch.zeros((len(rows), length + ids.shape[1]), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        seen[i, : length + len(row)] = 1
    text = module.get_input_embeddings()(ids.to(device))  # (rows, tokens, width)
    prompt = soft[torch.from_numpy(candidates).to(device)]  # (rows, length, width)
    answers = np.array([batch.answers[i] for i in examples])
    where = torch.from_numpy(answers + length * (answers >= front))
    index = torch.arange(len(rows))

    def pick(values: torch.Tensor) -> torch.Tensor:
        return values[index.to(values.device), where.to(values.device)][:, None]

    with head_at(module, pick) as finish:
        output = module(
            inputs_embeds=torch.cat([text[:, :front], prompt, text[:, front:]], dim=1),
            attention_mask=seen.to(device),
            **({"use_cache": False} if family == "causal" else {}),
        )
        return finish(output.logits)[:, 0]
