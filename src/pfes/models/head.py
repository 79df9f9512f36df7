"""The vocabulary projection, applied only where an answer is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Pick = Callable[[torch.Tensor], torch.Tensor]  # (rows, tokens, ·) → (rows, answers, ·)


@contextmanager
def head_at(module: Any, pick: Pick) -> Iterator[Pick]:
    """Have the vocabulary projection see only what `pick` takes of the hidden states.

    The projection is found through the model's own `get_output_embeddings` and narrowed by a hook
    on its input, so whatever an architecture does behind it still happens. Yields what to apply to
    the logits: nothing, or `pick` itself for an architecture that does not call that module.
    """
    narrowed = False

    def narrow(_module: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        nonlocal narrowed
        narrowed = True
        hidden, *rest = args
        return (pick(hidden), *rest)

    def finish(logits: torch.Tensor) -> torch.Tensor:
        return logits if narrowed else pick(logits)

    head = module.get_output_embeddings()
    handle = None if head is None else head.register_forward_pre_hook(narrow)
    try:
        yield finish
    finally:
        if handle is not None:
            handle.remove()
