"""How many tokens a forward pass should have: measured once, and remembered."""

import json
import os
import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from pfes.models.base import Floats
from pfes.models.local import LocalModel
from pfes.registry import cache_dir
from pfes.tasks.batch import Batch

FIRST = 1024  # tokens to begin with: enough to keep a CPU busy
WORTH = 0.97  # a larger or smaller pass must take less than this part of the time


def calibrate(model: LocalModel, prompt: Floats, batch: Batch, candidates: int) -> int:
    """Return how many tokens a pass should have, at most `model.max_batch_tokens`.

    Doubles the size while that is faster, else halves it. The choice is remembered by model, work
    and machine, so that runs of one config have the same shapes and so the same bits.
    """
    file = cache_dir() / "calibration.json"
    name = _name(model, prompt, batch, candidates)
    known = _read(file)
    if name not in known:
        measured = _measure(model, prompt, batch, candidates)
        known = {name: measured} | _read(file)  # another process may have been first
        with suppress(OSError):  # without a cache the choice is kept in the run's config alone
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(json.dumps(known, indent=1))
            draft.replace(file)
    return known[name]


def _name(model: LocalModel, prompt: Floats, batch: Batch, candidates: int) -> str:
    tokens = sum(len(row) for row in batch.token_ids)
    parts = (
        model.name, model.device, model.dtype, torch.get_num_threads(), torch.__version__,
        model.max_batch_tokens, batch.placement, len(prompt), len(batch), tokens, candidates,
    )  # fmt: skip
    return " ".join(map(str, parts))


def _measure(model: LocalModel, prompt: Floats, batch: Batch, candidates: int) -> int:
    times: dict[int, float] = {}
    before = model.batch_tokens

    def seconds(tokens: int) -> float:
        """Return the seconds that one candidate takes in passes of so many tokens."""
        if tokens not in times:
            model.batch_tokens = tokens
            row = len(prompt) + sum(len(row) for row in batch.token_ids)
            together = 1 if batch.placement == "suffix" else max(1, tokens // row)
            prompts = np.repeat(prompt[None], min(candidates, together), axis=0)
            model.logprobs(prompt[None], batch)  # prepares what is kept for this size
            began = time.perf_counter()
            model.logprobs(prompts, batch)
            times[tokens] = (time.perf_counter() - began) / len(prompts)
        return times[tokens]

    best = min(FIRST, model.max_batch_tokens)
    try:
        for factor in (2.0, 0.5):
            while best * factor <= model.max_batch_tokens:
                tried = int(best * factor)
                if tried < 1 or seconds(tried) > WORTH * seconds(best):
                    break
                best = tried
            if best != min(FIRST, model.max_batch_tokens):
                break
    finally:
        model.batch_tokens = before
    return best


def _read(file: Any) -> dict[str, int]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {name: tokens for name, tokens in known.items() if isinstance(tokens, int)}
