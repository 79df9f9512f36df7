"""The plain way to evaluate a prompt with Hugging Face: what one would write first."""

from typing import Any

import numpy as np
import torch

from pfes.contract import Batch, Floats
from pfes.models.local.local_model import LocalModel


@torch.inference_mode()
def plain_logprobs(model: LocalModel, prompt: Floats, batch: Batch) -> Floats:
    """Prompt repeated for each example, one padded batch, logits of every token."""
    module: Any = model.module
    front = 1 if model.family == "masked" else 0
    longest = max(map(len, batch.token_ids))
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    seen = torch.zeros((len(batch), len(prompt) + longest), dtype=torch.long)
    for i, row in enumerate(batch.token_ids):
        ids[i, : len(row)] = torch.tensor(row)
        seen[i, : len(prompt) + len(row)] = 1
    text = module.get_input_embeddings()(ids)
    soft = torch.from_numpy(prompt).expand(len(batch), -1, -1)
    inputs = torch.cat([text[:, :front], soft, text[:, front:]], dim=1)
    logits = module(inputs_embeds=inputs, attention_mask=seen).logits
    answers = torch.tensor(batch.answers) + len(prompt)
    answered = logits[torch.arange(len(batch)), answers].log_softmax(-1)
    return answered[:, list(batch.words)].numpy()  # type: ignore[no-any-return]


def largest_difference(left: Floats, right: Floats) -> float:
    """Return the largest difference between two arrays of log-probabilities."""
    return float(np.abs(left - right).max())
