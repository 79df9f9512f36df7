"""The paths by which prompts are evaluated; which of them a model can use is tried at load."""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias, TypedDict

import numpy as np
import torch

from pfes.contract import Batch, Family, Placement, Texts
from pfes.errors import PfesError
from pfes.models.local.last_layer import Readout, last_layer_parts
from pfes.models.local.packed import PackedEvaluator
from pfes.models.local.padded import Pass, padded_passes
from pfes.models.local.remembered import remembered
from pfes.models.local.suffix import SuffixEvaluator

FIRST_ROW, OTHER_ROW = tuple(range(1, 14)), (30, *range(2, 14))  # token ids of the checks
TOLERANCE = 1e-3  # of log-probabilities, in the checks; true differences are far larger
STEPS = 8  # of the model's precision at its largest logit, where that is more: half precision
FAILURES = (NotImplementedError, RuntimeError, TypeError, ValueError, StopIteration)
ByPair: TypeAlias = dict[tuple[int, int], torch.Tensor]  # log-probabilities
Passes: TypeAlias = Callable[[torch.Tensor, Batch, int], Iterator[Pass]]


class Tried(TypedDict):
    """What trying the paths of a model has shown."""

    alike: bool  # only rows of one length may share a pass
    fast: list[str]  # the names of the fast paths that it can use


class EvaluationPaths:
    """Evaluates prompts by the fastest path that gives a model's own answers.

    Every path is tried against the plain one on two short rows, and used only if both agree. The
    plain path is tried as well: against plain token ids, and for padding that changes answers.
    What was `tried` with such a model before is not tried again.
    """

    def __init__(self, module: Any, family: Family, tried: Tried | None = None) -> None:
        self._module = module
        self._family = family
        self._dtype = _coarsest(module)
        self._window = _longest_seen(module.config)
        self._stretch = _longest_unstretched(module.config)
        self._whole = Readout(module)
        self._tried = tried
        if tried is None:
            _check_tokens(module)
        self._alike = False
        if tried is not None:
            self._alike = tried["alike"]
        else:
            self._alike = not self._agrees(partial(self._padded, alike=True))
        self._fast = self._whole
        parts = last_layer_parts(module)
        narrow = self._whole.with_parts(parts)
        if parts and self._usable("last-layer", partial(self.plain, readout=narrow)):
            self._fast = narrow
        self._evaluators: dict[Placement, PackedEvaluator | SuffixEvaluator] = {}
        if family == "causal" and _takes_plans(module):
            packed = PackedEvaluator(module, self._fast)
            if self._usable("prefix", packed.passes):
                self._evaluators["prefix"] = packed
                suffix = SuffixEvaluator(module, self._fast)
                if self._usable("suffix", suffix.passes, "suffix"):
                    self._evaluators["suffix"] = suffix

    @property
    def tried(self) -> Tried:
        """What trying the paths has shown."""
        return {"alike": self._alike, "fast": sorted(self.names)}

    @property
    def names(self) -> set[str]:
        """The fast paths that this architecture can use."""
        return {*self._evaluators, *([] if self._fast is self._whole else ["last-layer"])}

    def passes(self, soft: torch.Tensor, batch: Batch, max_tokens: int) -> Iterator[Pass]:
        """Evaluate prompts `soft` (candidates, length, width)."""
        soft, batch = self._with_ending(soft, batch)
        # without a prompt the two placements are the same
        evaluator = self._evaluators.get(batch.placement if soft.shape[1] else "prefix")
        if evaluator is None or _longest(soft, batch) > min(self._window, self._stretch):
            return self.plain(soft, batch, max_tokens, self._fast)
        return evaluator.passes(soft, batch, max_tokens)

    def plain(
        self,
        soft: torch.Tensor,
        batch: Batch,
        max_tokens: int,
        readout: Readout | None = None,
    ) -> Iterator[Pass]:
        """Evaluate by the plain path; where padding matters, only rows of one length together."""
        soft, batch = self._with_ending(soft, batch)
        alike = self._alike or _longest(soft, batch) > self._stretch
        return self._padded(soft, batch, max_tokens, readout, alike)

    def _with_ending(self, soft: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, Batch]:
        """Put the template's end, which is the same for all examples, behind every prompt."""
        if not batch.end:
            return soft, batch
        ids = torch.tensor(batch.ending(soft.shape[1]), device=soft.device)
        end = self._module.get_input_embeddings()(ids).to(soft.dtype)
        longer = torch.cat([soft, end.expand(len(soft), -1, -1)], dim=1)
        # a masked model answers within the end, one token of which has a prompt in its place
        shift = max(0, soft.shape[1] - 1) if self._family == "masked" else 0
        answers = tuple(answer + shift for answer in batch.answers)
        return longer, replace(batch, placement="suffix", end=(), answers=answers)

    def _padded(
        self,
        soft: torch.Tensor,
        batch: Batch,
        max_tokens: int,
        readout: Readout | None = None,
        alike: bool = False,
    ) -> Iterator[Pass]:
        readout = readout or self._whole
        return padded_passes(self._module, self._family, soft, batch, max_tokens, readout, alike)

    def _usable(self, name: str, passes: Passes, placement: Placement = "prefix") -> bool:
        if self._tried is not None:
            return name in self._tried["fast"]
        return self._agrees(passes, placement)

    def _agrees(self, passes: Passes, placement: Placement = "prefix") -> bool:
        rows = (FIRST_ROW, (14, 15, 16))  # of which one has much padding
        answers = (12, 2) if self._family == "causal" else (3, 1)
        batch = Batch(rows, answers, (0, 1), np.zeros(2, dtype=np.int64), placement)
        weight = self._module.get_input_embeddings().weight
        soft = torch.stack([weight[i : i + 2] for i in (9, 11)])
        try:
            with torch.inference_mode():
                plain = dict(_by_pair(self.plain(soft, batch, 64)))
                for _ in range(2):  # the second time from what was kept
                    fast = dict(_by_pair(passes(soft, batch, 64)))
                    if not all(_close(fast[pair], plain[pair], self._dtype) for pair in plain):
                        return False
                if torch.finfo(self._dtype).bits < 32:
                    changed = replace(batch, token_ids=(OTHER_ROW, rows[1]), texts=Texts())
                    other = dict(_by_pair(passes(soft, changed, 64)))
                    return _each_sees_its_own(fast, other, self._dtype)
        except FAILURES:
            return False
        return True


def _coarsest(module: Any) -> torch.dtype:
    """Return the precision of the weights that have the fewest bits."""
    kinds = {p.dtype for p in module.parameters() if p.is_floating_point()}
    coarsest: torch.dtype = max(kinds, key=lambda dtype: torch.finfo(dtype).eps)
    return coarsest


def _longest(soft: torch.Tensor, batch: Batch) -> int:
    return int(soft.shape[1]) + max(len(row) for row in batch.token_ids)


def _takes_plans(module: Any) -> bool:
    """Say whether an architecture lets a library bring its own attention and positions."""
    return (
        getattr(module, "_supports_attention_backend", False)
        and "position_ids" in inspect.signature(module.forward).parameters
    )


def _check_tokens(module: Any) -> None:
    """Refuse a model whose outputs for `inputs_embeds` differ from those for the same tokens."""
    config = module.config.get_text_config()
    embedding = module.get_input_embeddings()
    special = (config.pad_token_id, config.eos_token_id)
    ids = torch.tensor([[i for i in range(9, 19) if i not in special]])
    ids = ids.to(embedding.weight.device)
    try:
        with torch.inference_mode():
            forms = ({"input_ids": ids}, {"inputs_embeds": embedding(ids)})
            mask = torch.ones_like(ids)
            plain, soft = (
                module(**form, attention_mask=mask).logits.float().log_softmax(-1) for form in forms
            )
    except FAILURES:
        return  # the two cannot be compared, so nothing is known to be wrong
    if not _close(soft, plain, _coarsest(module)):
        raise PfesError(
            f"model type {config.model_type!r} gives different outputs for inputs_embeds and the "
            "same input_ids, so soft prompts cannot work"
        )


def _close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    largest = float(expected.abs().max())
    tolerance = max(TOLERANCE, STEPS * torch.finfo(dtype).eps * largest)
    return torch.allclose(actual, expected, atol=tolerance)


def remembered_paths(module: Any, family: Family) -> EvaluationPaths:
    """Return the paths of a model that has a known architecture; they are tried once on a machine.

    Which of them can be used depends on the code that runs and on the model's configuration, and
    not on its weights.
    """
    about = module.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):
        about.pop(name, None)
    embedding = module.get_input_embeddings().weight
    versions = [version(name) for name in ("pfes", "torch", "transformers")]
    parts = (json.dumps(about, sort_keys=True, default=str), embedding.dtype, embedding.device)
    digest = hashlib.sha256(" ".join(map(str, (*parts, *versions))).encode()).hexdigest()
    key = f"{type(module).__name__} {digest[:16]}"
    tried = remembered("paths.json", key, lambda: EvaluationPaths(module, family).tried, _is_tried)
    return EvaluationPaths(module, family, tried)


def _is_tried(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("alike"), bool)
        and isinstance(value.get("fast"), list)
    )


def _each_sees_its_own(before: ByPair, after: ByPair, dtype: torch.dtype) -> bool:
    """Say whether another token in the first example changes its answers, and no others.

    With few bits, answers that round differently may differ as much as those with a wrong mask.
    These two were computed alike, so what a token does not reach stays as it was.
    """

    def changed(pair: tuple[int, int]) -> bool:
        spread = before[pair].std()
        change = (after[pair] - before[pair]).square().mean().sqrt()
        return bool(change > torch.finfo(dtype).eps / 4 * spread)

    return all(changed(pair) == (pair[1] == 0) for pair in before)


def _by_pair(passes: Iterator[Pass]) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    for (candidates, examples), logits in passes:
        logprobs = logits.float().log_softmax(-1)
        pairs = zip(candidates.tolist(), examples.tolist(), strict=True)
        yield from zip(pairs, logprobs, strict=True)


def _longest_seen(config: Any) -> float:
    """Return the window beyond which some layers do not look back."""
    text = config.get_text_config()  # of a model that also sees or hears, its part for text
    windows = (getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=math.inf)


def _longest_unstretched(config: Any) -> float:
    """Return the length beyond which positions are stretched by the longest row of a pass."""
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    kinds = rope.values() if all(isinstance(value, dict) for value in rope.values()) else [rope]
    stretched = [kind for kind in kinds if kind.get("rope_type") in ("longrope", "dynamic")]
    known = (kind.get("original_max_position_embeddings") for kind in stretched)
    return min((length or text.max_position_embeddings for length in known), default=math.inf)
