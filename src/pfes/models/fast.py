"""Which fast ways of evaluation an architecture takes part in, found by trying each at load."""

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from pfes.models.narrow import last_layer_parts
from pfes.models.packed import PackedEvaluator
from pfes.models.padded import Pass, padded_passes
from pfes.models.suffix import SuffixEvaluator
from pfes.tasks.batch import Batch, Placement
from pfes.tasks.spec import Family

TOLERANCE = 1e-3  # of log-probabilities, in the checks; true differences are far larger
STEPS = 8  # of the model's precision at its largest logit, where that is more: half precision
FAILURES = (NotImplementedError, RuntimeError, TypeError, ValueError, StopIteration)


class FastPaths:
    """Evaluates prompts by the fastest way that gives a model's own answers.

    Every way is tried against the plain one on two short rows, and used only if both agree.
    """

    def __init__(self, module: Any, family: Family) -> None:
        self._module = module
        self._family = family
        self._window = _longest_seen(module.config)
        self._parts: list[torch.nn.Module] = []
        parts = last_layer_parts(module)
        if parts and _agrees(module, family, partial(self._padded, parts=parts)):
            self._parts = parts
        self._evaluators: dict[Placement, PackedEvaluator | SuffixEvaluator] = {}
        if family == "causal" and _takes_plans(module):
            packed = PackedEvaluator(module, self._parts)
            if _agrees(module, family, packed.passes):
                self._evaluators["prefix"] = packed
                suffix = SuffixEvaluator(module, self._parts)
                if _agrees(module, family, suffix.passes, "suffix"):
                    self._evaluators["suffix"] = suffix

    @property
    def names(self) -> set[str]:
        """The ways that the architecture takes part in."""
        return {*self._evaluators, *(["narrow"] if self._parts else [])}

    def passes(self, soft: torch.Tensor, batch: Batch, max_tokens: int) -> Iterator[Pass]:
        """Evaluate prompts `soft` (candidates, length, width)."""
        length = soft.shape[1]
        # without a prompt the two placements are the same
        evaluator = self._evaluators.get(batch.placement if length else "prefix")
        longest = length + max(len(row) for row in batch.token_ids)
        if evaluator is None or (self._window is not None and longest > self._window):
            return self._padded(soft, batch, max_tokens, self._parts)
        return evaluator.passes(soft, batch, max_tokens)

    def _padded(
        self, soft: torch.Tensor, batch: Batch, max_tokens: int, parts: list[torch.nn.Module]
    ) -> Iterator[Pass]:
        return padded_passes(self._module, self._family, soft, batch, max_tokens, parts)


def _takes_plans(module: Any) -> bool:
    """Say whether an architecture lets a library bring its own attention and positions."""
    return (
        getattr(module, "_supports_attention_backend", False)
        and "position_ids" in inspect.signature(module.forward).parameters
    )


def _agrees(module: Any, family: Family, passes: Any, placement: Placement = "prefix") -> bool:
    rows = ((1, 2, 3, 4, 5), (6, 7, 8))
    answers = (4, 2) if family == "causal" else (3, 1)
    batch = Batch(rows, answers, (0, 1), np.zeros(2, dtype=np.int64), placement)
    soft = torch.stack([module.get_input_embeddings().weight[i : i + 2] for i in (9, 11)])
    try:
        with torch.inference_mode():
            plain = dict(_by_pair(padded_passes(module, family, soft, batch, 64)))
            largest = max(float(logprobs.abs().max()) for logprobs in plain.values())
            tolerance = max(TOLERANCE, STEPS * torch.finfo(soft.dtype).eps * largest)
            for _ in range(2):  # the second time from what was kept
                fast = dict(_by_pair(passes(soft, batch, 64)))
                if not all(
                    torch.allclose(fast[pair], plain[pair], atol=tolerance) for pair in plain
                ):
                    return False
    except FAILURES:
        return False
    return True


def _by_pair(passes: Iterator[Pass]) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    for (candidates, examples), logits in passes:
        logprobs = logits.float().log_softmax(-1)
        pairs = zip(candidates.tolist(), examples.tolist(), strict=True)
        yield from zip(pairs, logprobs, strict=True)


def _longest_seen(config: Any) -> int | None:
    """Return the window beyond which some layers do not look back, or None."""
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=None)
