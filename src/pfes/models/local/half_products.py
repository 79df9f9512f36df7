"""The same module with its matrix products in fewer bits.

The products are most of the work, and CPUs with bfloat16 do them several times as fast. All else
stays in float32: the prompt, the sums over the layers, norms, attention and the vocabulary. So the
answers differ less than those of a model that has only such weights.
"""

import copy
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from pfes.models.local.last_layer import vocabulary_head


class HalfProduct(torch.nn.Linear):
    """A product with a matrix that has fewer bits than what comes in and goes out."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        torch.nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.weight = torch.nn.Parameter(weight.detach().to(dtype), requires_grad=False)
        self.bias = bias  # type: ignore[assignment]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        product = linear(states.to(self.weight.dtype), self.weight).to(states.dtype)
        return product if self.bias is None else product.add_(self.bias)


def with_half_products(module: Any, dtype: torch.dtype) -> Any:
    """Return a module with the products of all layers in `dtype`; it shares all other weights."""
    shared = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    other = copy.deepcopy(module, shared)
    head = vocabulary_head(other)
    kept = set() if head is None else set(head.modules())
    for name, part in list(other.named_modules()):
        if part in kept or type(part) not in (torch.nn.Linear, Conv1D):
            continue
        weight = part.weight if type(part) is torch.nn.Linear else part.weight.T.contiguous()
        parent, _, leaf = name.rpartition(".")
        setattr(other.get_submodule(parent), leaf, HalfProduct(weight, part.bias, dtype))
    return other.eval()


def half_bytes(module: Any) -> int:
    """Return the bytes that the further weights take, at most."""
    return sum(int(parameter.nbytes) for parameter in module.parameters()) // 2
