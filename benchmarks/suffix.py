"""Prompts behind the text: what an evaluation costs as texts grow."""

from collections.abc import Iterator

import numpy as np

from benchmarks.evaluation import REPEATS, causal_model, objective, prompt
from benchmarks.plain import largest_difference
from benchmarks.timing import Row, in_turns
from pfes.contract import Batch, Placement
from pfes.models.local.padded import padded_passes


def texts_of(tokens: int, examples: int = 32, placement: Placement = "suffix") -> Batch:
    """Return real text, cut to pieces of some length."""
    stream = [token for row in objective(10).batch.token_ids for token in row]
    stream = stream * (1 + tokens * examples // len(stream))
    rows = [tuple(stream[i * tokens : (i + 1) * tokens]) for i in range(examples)]
    answers = (tokens - 1,) * examples
    labels = np.zeros(examples, dtype=np.int64)
    return Batch(tuple(rows), answers, objective(10).batch.words, labels, placement)


def suffix_growth() -> Iterator[Row]:
    import torch

    model, soft = causal_model(), prompt(10)
    short, long = texts_of(30), texts_of(120)
    brief, lengthy = in_turns(
        REPEATS,
        lambda: model.logprobs(soft[None], short),
        lambda: model.logprobs(soft[None], long),
    )
    found = model.logprobs(soft[None], long)[0]
    plain = np.empty_like(found)
    with torch.inference_mode():
        given = torch.from_numpy(soft)[None]
        for (_, examples), logits in padded_passes(model.module, "causal", given, long, 2048):
            plain[examples] = logits.log_softmax(-1)[:, list(long.words)].numpy()
    yield Row(
        "FE, suffix, l = 10, texts of 120 tokens", "texts of 30", lengthy / brief,
        1.15, "at most", f"{lengthy:.3f} s, {brief:.3f} s", largest_difference(found, plain), 1e-3,
    )  # fmt: skip
