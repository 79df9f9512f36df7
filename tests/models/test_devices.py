"""A model whose layers are on several devices, which only count: they hold no numbers.

torch's fake tensors have a shape and a device and no values; an operation between two devices is an
error, as on real ones. So these tests show that every tensor is where it is needed.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pfes.contract import Batch, Placement
from pfes.models.local.last_layer import Readout, last_layer_parts
from pfes.models.local.packed import PackedEvaluator
from pfes.models.local.suffix import SuffixEvaluator
from tests import tiny
from tests.models.test_local import EXAMPLES, SPEC


def moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(moved(part, device) for part in value)
    return value


def put(part: torch.nn.Module, device: torch.device) -> None:
    """Move what a part holds; its own `to` cannot move fake tensors."""
    for owner in part.modules():
        for name, weight in owner.named_parameters(recurse=False):
            setattr(owner, name, torch.nn.Parameter(weight.detach().to(device)))
        for name, buffer in owner.named_buffers(recurse=False):
            setattr(owner, name, buffer.to(device))


def spread(module: Any, devices: list[str]) -> None:
    """Put parts of a model on devices, with hooks that move their inputs, as accelerate does."""
    layers = list(module.get_decoder().layers)
    rest = [module.get_decoder().norm, module.get_output_embeddings()]
    parts = [module.get_input_embeddings(), *layers, *rest]
    where = [devices[0], *(devices[1 + i] for i in range(len(layers))), devices[-1], devices[-1]]
    for part, name in zip(parts, where, strict=True):
        device = torch.device(name)
        put(part, device)

        def fetch(
            _: Any, given: tuple[Any, ...], options: dict[str, Any], to: torch.device = device
        ) -> Any:
            return moved(given, to), {name: moved(value, to) for name, value in options.items()}

        part.register_forward_pre_hook(fetch, with_kwargs=True)
    put(module.get_decoder().rotary_emb, torch.device(devices[0]))
    home = torch.device(devices[0])
    module.register_forward_hook(lambda _, __, output: back(output, home))


def back(output: Any, home: torch.device) -> Any:
    output.logits = output.logits.to(home)
    return output


def encoded(placement: Placement = "prefix") -> Batch:
    from pfes.tasks.encode import encode

    return encode(SPEC, EXAMPLES, tiny.make_tokenizer("causal"), "causal", 200, placement)


def packed(module: Any, soft: torch.Tensor) -> Any:
    return PackedEvaluator(module, Readout(module, last_layer_parts(module))).passes(
        soft, encoded(), 64
    )


def suffix(module: Any, soft: torch.Tensor) -> Any:
    evaluator = SuffixEvaluator(module, Readout(module, last_layer_parts(module)))
    batch = encoded("suffix")
    list(evaluator.passes(soft, batch, 64))
    return evaluator.passes(soft, batch, 64)  # from what was kept


@pytest.mark.parametrize(
    "devices",
    [
        ["lazy:0"] * 4,
        ["lazy:0", "lazy:0", "lazy:1", "lazy:1"],
        ["lazy:0", "lazy:1", "cpu", "lazy:1"],
    ],
)
@pytest.mark.parametrize("path", [packed, suffix])
def test_every_path_finds_its_tensors_on_the_device_of_a_layer(
    path: Callable[[Any, torch.Tensor], Any], devices: list[str]
) -> None:
    batch = encoded()
    with FakeTensorMode(allow_non_fake_inputs=True):
        module = tiny.make_module("llama")
        spread(module, devices)
        soft = torch.zeros(2, 3, 32, device=devices[0])
        with torch.no_grad():
            passes = list(path(module, soft))
    pairs = {pair for (c, e), _ in passes for pair in zip(c.tolist(), e.tolist(), strict=True)}
    assert pairs == {(candidate, i) for candidate in range(2) for i in range(len(batch))}
    for (candidates, _), logits in passes:
        assert logits.shape == (len(candidates), 700)
        assert str(logits.device) == devices[0]
