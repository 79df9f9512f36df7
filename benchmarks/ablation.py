"""`python -m benchmarks.ablation`: what each idea of the fast path gives, by leaving it out."""

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.evaluation import causal_model, objective, prompt
from benchmarks.plain import plain_logprobs
from benchmarks.timing import in_turns
from pfes.contract import Batch
from pfes.models.local import packed
from pfes.models.local.last_layer import Readout, last_layer_parts
from pfes.models.local.packed import PackedEvaluator
from pfes.models.local.padded import padded_passes

LENGTH, REPEATS, TOKENS = 50, 3, 2048


def main() -> None:
    model, batch, soft = causal_model(), objective(LENGTH).batch, prompt(LENGTH)
    module, given = model.module, torch.from_numpy(prompt(LENGTH))[None]
    whole = Readout(module)
    fast = whole.with_parts(last_layer_parts(module))

    def packed_way(block_cost: float, readout: Readout) -> Callable[[], None]:
        evaluator = PackedEvaluator(module, readout)
        rows = batch.take(range(len(batch)))
        with _block_cost(block_cost), torch.inference_mode():
            evaluator.layouts(rows, LENGTH, TOKENS)
        return _run(lambda: evaluator.passes(given, rows, TOKENS))

    def padded_way(rows: Batch) -> Callable[[], None]:
        return _run(lambda: padded_passes(module, "causal", given, rows, TOKENS, fast))

    ways: dict[str, Callable[[], object]] = {
        "everything": packed_way(packed.BLOCK_COST, fast),
        "attention padded to the longest": packed_way(np.inf, fast),
        "the last layer at every token": packed_way(packed.BLOCK_COST, whole),
        "prompt for each example, padded by like length": padded_way(batch),
        "the plain way": lambda: plain_logprobs(model, soft, batch),
    }
    times = in_turns(REPEATS, *ways.values())
    for name, seconds in zip(ways, times, strict=True):
        print(f"{name}: {seconds:.2f} s, {seconds / times[0]:.2f} of everything", flush=True)


def _run(passes: Callable[[], object]) -> Callable[[], None]:
    @torch.inference_mode()
    def run() -> None:
        for _ in passes():  # type: ignore[attr-defined]
            pass

    return run


class _block_cost:  # noqa: N801
    """Have layouts made with another cost of a block."""

    def __init__(self, cost: float) -> None:
        self.cost, self.before = cost, packed.BLOCK_COST

    def __enter__(self) -> None:
        packed.BLOCK_COST = self.cost  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        packed.BLOCK_COST = self.before


if __name__ == "__main__":
    main()
