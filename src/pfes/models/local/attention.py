"""Our own attention in an unpatched model: transformers lets a library register a function."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "pfes"
UNKNOWN = {"attention_mask", "softcap", "s_aux", "position_bias", "indices", "block_indices"}


class AttentionInputs(NamedTuple):
    """What one layer hands to attention; tensors are `(rows, heads, tokens, size)`."""

    layer: Any
    query: torch.Tensor
    key: torch.Tensor  # has fewer heads where several query heads share one
    value: torch.Tensor
    scale: float | None


class Plan(Protocol):
    """How the tokens of a pass attend to each other."""

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Return the attended values, `(rows, tokens, heads, size)`."""


_plan: ContextVar[Plan | None] = ContextVar("plan", default=None)


@contextmanager
def attending(module: Any, plan: Plan) -> Iterator[None]:
    """Let a model use a plan for its attention."""
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
    options["attention_mask"] = attention_mask  # ours is in the plan: this is the model's own
    unknown = UNKNOWN.intersection(name for name, option in options.items() if option is not None)
    if plan is None or unknown:
        raise NotImplementedError(f"our attention does not know {', '.join(unknown)}")
    return plan.attend(AttentionInputs(layer, query, key, value, scaling)), None


def _no_mask(*_args: Any, **_options: Any) -> None:
    """Make no mask: the plan has it."""


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)
