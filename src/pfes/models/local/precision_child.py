"""`python -m pfes.models.local.precision_child`: the process in which bfloat16 is tried.

It reads a job as JSON from its input, and prints the seconds of an evaluation in float32 and in
bfloat16, and by how much the answers differ.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pfes.contract import Batch, Floats

REPEATS = 2
PROMPTS = 2  # the first tokens of the vocabulary, and others a little beside them
NOISE = 0.1  # of the second prompt, relative to the embedding


def main() -> None:
    """Try a product alone, which costs nothing, then the whole model."""
    import torch

    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    slower = _one_product(torch, sum(map(len, job["rows"])))
    print(json.dumps(slower or _whole_model(job)))


def _one_product(torch: Any, rows: int) -> dict[str, float] | None:
    """Return figures where bfloat16 is not even faster for a product of usual size."""
    given, matrix = torch.randn(rows, 512), torch.randn(1536, 512)
    half = given.bfloat16(), matrix.bfloat16()
    with torch.inference_mode():
        difference = float((half[0] @ half[1].T - given @ matrix.T).abs().max() / 100)
        plain, fast = _in_turns(lambda: given @ matrix.T, lambda: half[0] @ half[1].T)
    if fast < plain:
        return None
    return {"float32": plain, "bfloat16": fast, "difference": difference}


def _whole_model(job: dict[str, Any]) -> dict[str, float]:
    from pfes.models.local.load import load_model
    from pfes.models.source import ModelSource

    source = ModelSource(job["model"], job["trust_remote_code"])
    model = load_model(source, device="cpu", dtype="float32")
    half = model.with_half_products()
    rows = tuple(tuple(row) for row in job["rows"])
    batch = Batch(
        rows, tuple(job["answers"]), tuple(job["words"]), np.zeros(len(rows), dtype=np.int64),
        job["placement"], end=tuple(job["end"]),
    )  # fmt: skip
    start = model.embed(range(job["length"]))
    scale = NOISE * float(np.sqrt(np.mean(start**2)))
    noise = np.random.default_rng(0).standard_normal((PROMPTS, *start.shape))
    prompts: Floats = (start + scale * noise).astype(np.float32)
    for one in (model, half):
        one.set_batch_tokens(job["batch_tokens"])
    change = half.logprobs(prompts, batch) - model.logprobs(prompts, batch)
    plain, fast = _in_turns(
        lambda: model.logprobs(prompts[:1], batch), lambda: half.logprobs(prompts[:1], batch)
    )
    difference = float(np.sqrt(np.mean(change.astype(np.float64) ** 2)))
    return {"float32": plain, "bfloat16": fast, "difference": difference}


def _in_turns(*works: Callable[[], object]) -> list[float]:
    times: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for own, work in zip(times, works, strict=True):
            began = time.perf_counter()
            work()
            own.append(time.perf_counter() - began)
    return [min(own) for own in times]


if __name__ == "__main__":
    main()
