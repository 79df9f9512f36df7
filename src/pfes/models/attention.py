"""Attention of our own in an unpatched model: transformers lets a library bring its function."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "pfes"
UNKNOWN = {"attention_mask", "softcap", "s_aux", "position_bias", "indices", "block_indices"}


class Asked(NamedTuple):
    """What one layer asks of attention; `(rows, heads, tokens, size)` each."""

    layer: Any
    query: torch.Tensor
    key: torch.Tensor  # of fewer heads, where several share one
    value: torch.Tensor
    scale: float | None


class Plan(Protocol):
    """How the tokens of a pass look at each other."""

    def attend(self, asked: Asked) -> torch.Tensor:
        """Return what the tokens see, `(rows, tokens, heads, size)`."""


_plan: ContextVar[Plan | None] = ContextVar("plan", default=None)


@contextmanager
def attending(module: Any, plan: Plan) -> Iterator[None]:
    """Have a model attend by a plan."""
    before = module.config._attn_implementation
    token = _plan.set(plan)
    module.config._attn_implementation = NAME
    try:
        yield
    finally:
        module.config._attn_implementation = before
        _plan.reset(token)


def _attention(
    layer: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    plan = _plan.get()
    options["attention_mask"] = attention_mask  # none of ours: one that the model made itself
    unknown = UNKNOWN.intersection(name for name, option in options.items() if option is not None)
    if plan is None or unknown:
        raise NotImplementedError(f"our attention does not know {', '.join(unknown)}")
    return plan.attend(Asked(layer, query, key, value, scaling)), None


def _no_mask(*_args: Any, **_options: Any) -> None:
    """Stand in for the mask, which the plan holds."""


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)
