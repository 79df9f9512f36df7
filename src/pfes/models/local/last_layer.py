"""Compute only what is read: the last layer and the vocabulary projection at answer positions.

The projection is computed in float32 whatever the weights are: at logits near 12, bfloat16 has
steps of 0.06, and a search compares far smaller differences.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

# names of layers that make keys and values: every later token looks at their output
SEEN_BY_OTHERS = re.compile(r"(^|_)(k|v|kv|qkv|key|value|attn)(_|$|\d)")


@dataclass(frozen=True)
class ReadPositions:
    """Positions in a batch of rows of tokens: the same in every row, or one for each row."""

    shape: tuple[int, int]  # rows, tokens
    columns: torch.Tensor  # (answers,), or (rows,) where they differ by row
    by_row: bool = False

    def pick(self, values: torch.Tensor) -> torch.Tensor:
        """Select these positions: `(rows, tokens, ·)` → `(rows, answers, ·)`.

        Some architectures fold rows and tokens into one dimension; then the result is folded too.
        """
        if values.shape[:1] == (self.shape[0] * self.shape[1],) and values.ndim == 2:
            return self.pick(values.view(*self.shape, -1)).flatten(0, 1)
        columns = self.columns.to(values.device)
        if self.by_row:
            return values[torch.arange(len(columns), device=values.device), columns][:, None]
        return values[:, columns]

    def fits(self, value: Any) -> bool:
        """Say whether a value is a tensor over these rows and tokens."""
        rows, tokens = self.shape
        return isinstance(value, torch.Tensor) and (
            (value.ndim == 2 and len(value) == rows * tokens)
            or (value.ndim > 2 and value.shape[:2] == self.shape)
        )

    def scatter(self, picked: torch.Tensor) -> torch.Tensor:
        """Undo `pick`: put the values back at their positions, with zeros everywhere else."""
        rows, tokens = self.shape
        if picked.ndim == 2:
            return self.scatter(picked.view(rows, -1, picked.shape[-1])).flatten(0, 1)
        whole = picked.new_zeros(rows, tokens, *picked.shape[2:])
        columns = self.columns.to(picked.device)
        if self.by_row:
            whole[torch.arange(rows, device=picked.device), columns] = picked[:, 0]
        else:
            whole[:, columns] = picked
        return whole


def last_layer_parts(module: Any) -> list[torch.nn.Module]:
    """Return the parts of the last layer whose output no other token looks at."""
    count = getattr(module.config.get_text_config(), "num_hidden_layers", None)
    stacks = [
        part
        for part in module.base_model.modules()
        if isinstance(part, torch.nn.ModuleList) and len(part) == count and _projections(part)
    ]
    return list(_own_parts(stacks[-1][-1])) if stacks else []


def _own_parts(part: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for name, child in part.named_children():
        inner = [name, *_projections(child)] if not list(child.children()) else _projections(child)
        if not _projections(child):
            continue
        if any(SEEN_BY_OTHERS.search(label.rpartition(".")[2]) for label in inner):
            yield from _own_parts(child)
        else:
            yield child


def _projections(part: torch.nn.Module) -> list[str]:
    """Return the names of the weight matrices in a part, without embeddings and norms."""
    kinds = (torch.nn.Embedding, torch.nn.LayerNorm)
    return [
        name
        for name, child in part.named_modules()
        if getattr(child, "weight", None) is not None
        and child.weight.ndim == 2
        and not isinstance(child, kinds)
    ]


class Readout:
    """How answers are read out of a module: which parts of it run at the read positions only.

    `parts` are those of the last layer. The projection to the vocabulary, the module's own
    `get_output_embeddings`, is computed in float32 in any case.
    """

    def __init__(self, module: Any, parts: Sequence[torch.nn.Module] = ()) -> None:
        self._module = module
        self._parts = list(parts)
        self._last = module.get_output_embeddings()
        self._exact = _in_float32(self._last)

    def with_parts(self, parts: Sequence[torch.nn.Module]) -> "Readout":
        """Return the same readout, with other parts that run at the read positions only."""
        other = copy(self)
        other._parts = list(parts)
        return other

    @contextmanager
    def at(self, positions: ReadPositions) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
        """Compute the parts and the projection at these positions only.

        Hooks on their inputs select the positions, so whatever an architecture does after them
        still happens. Yields a function to apply to the logits: it does nothing, or it selects the
        positions where the architecture does not call that module.
        """
        narrowed = False

        def narrow(_part: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            kept = [positions.pick(value) if positions.fits(value) else value for value in args]
            named = {k: positions.pick(v) if positions.fits(v) else v for k, v in options.items()}
            return tuple(kept), named

        def narrow_head(part: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            nonlocal narrowed
            narrowed = True
            return narrow(part, args, options)

        def widen(_part: Any, _args: Any, output: Any) -> torch.Tensor:
            if not isinstance(output, torch.Tensor):
                raise NotImplementedError("a part of the last layer returns more than its states")
            return positions.scatter(output)

        with ExitStack() as hooks:
            for part in self._parts:
                handle = part.register_forward_pre_hook(narrow, with_kwargs=True)
                hooks.enter_context(_removed(handle))
                hooks.enter_context(_removed(part.register_forward_hook(widen)))
            head = vocabulary_head(self._module)
            if head is not None:
                handle = head.register_forward_pre_hook(narrow_head, with_kwargs=True)
                hooks.enter_context(_removed(handle))
            if self._exact is not None:
                hooks.enter_context(_replaced(self._last, self._exact))
            yield lambda logits: logits if narrowed else positions.pick(logits)


def _in_float32(last: Any) -> torch.nn.Linear | None:
    """Return a copy of the projection to the vocabulary, or None where it has such weights."""
    if not isinstance(last, torch.nn.Linear) or torch.finfo(last.weight.dtype).bits >= 32:
        return None
    if last.weight.is_meta:  # accelerate brings it from elsewhere, when it is called
        return None
    exact = torch.nn.Linear(1, 1, bias=False)
    exact.weight = torch.nn.Parameter(last.weight.detach().float(), requires_grad=False)
    if last.bias is not None:
        exact.bias = torch.nn.Parameter(last.bias.detach().float(), requires_grad=False)
    return exact


@contextmanager
def _replaced(part: torch.nn.Module, other: torch.nn.Linear) -> Iterator[None]:
    """Have `other` compute the output of `part`, which itself gets nothing to compute."""
    inputs: list[torch.Tensor] = []

    def take(_part: Any, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        inputs.append(args[0])
        return args[0][:0]

    def give(_part: Any, _args: Any, _output: Any) -> torch.Tensor:
        return other(inputs.pop().to(other.weight))  # type: ignore[no-any-return]

    with (
        _removed(part.register_forward_pre_hook(take)),
        _removed(part.register_forward_hook(give)),
    ):
        yield


def vocabulary_head(module: Any) -> torch.nn.Module | None:
    """Return the vocabulary projection, with what a masked model has in front of it."""
    head = module.get_output_embeddings()
    if head is None:
        return None
    for child in module.children():
        inner = list(child.modules())
        if head in inner and module.get_input_embeddings() not in inner:
            return child  # type: ignore[no-any-return]
    return head  # type: ignore[no-any-return]


@contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()
