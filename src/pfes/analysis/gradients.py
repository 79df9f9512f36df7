"""Gradients of the loss at random prompts, which need backpropagation through the model."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.contract import Batch, Floats, LanguageModel
from pfes.errors import OutOfMemoryError, PfesError, SettingError
from pfes.models.local.local_model import LocalModel
from pfes.seeds import stream
from pfes.system.files import replace_file
from pfes.system.memory import is_out_of_memory

NEEDED = "gradients need the weights in float32"
GROUP_TOKENS = 8192  # at most so many tokens are differentiated together


def random_prompt(model: LanguageModel, length: int, seed: int, number: int) -> Floats:
    """Return the `number`-th random prompt: tokens drawn uniformly, whatever was drawn before."""
    tokens = stream(seed, f"prompt {length} {number}").integers(model.vocabulary, size=length)
    return model.embed(tokens.tolist())


def loss_gradients(
    model: LocalModel, prompts: NDArray[np.floating], batch: Batch
) -> NDArray[np.floating]:
    """Return the gradient of the mean cross-entropy at each prompt, `(prompts, length, width)`.

    They are computed by the plain evaluation path, in the model's precision but at least in
    float32: the weights of a model in half precision are put into float32, for good.
    """
    widen(model)
    soft = torch.tensor(prompts, device=model.device, dtype=model.dtype, requires_grad=True)
    words = torch.tensor(batch.words, device=model.device)
    labels = torch.tensor(batch.labels, device=model.device)
    for (_, examples), logits in model.plain_passes(soft, batch):
        true_labels = labels[torch.from_numpy(examples).to(model.device)]
        loss = torch.nn.functional.cross_entropy(logits[:, words], true_labels, reduction="sum")
        (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
    assert soft.grad is not None
    return soft.grad.cpu().numpy()


def widen(model: LocalModel) -> None:
    """Put weights in half precision into float32, where their values stay what they are.

    Gradients computed in half precision have 3 digits or fewer, so their directions, which the
    analysis compares, would be mostly rounding.
    """
    weights = [weight for weight in model.module.parameters() if weight.is_floating_point()]
    if all(weight.dtype.itemsize >= 4 for weight in weights):
        return
    try:
        if any(weight.is_meta for weight in weights):
            message = f"{NEEDED}, and some of them are offloaded: use --dtype float32"
            raise SettingError("dtype", message)
        model.module.float()
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"{NEEDED}, and they do not fit: use --device-map auto"
            ) from None
        raise


class GradientFile:
    """A matrix on disk with a row for each of `samples` gradients, and the number of rows filled.

    Rows are flushed before they are counted, so a kill at any moment loses at most one group.
    """

    def __init__(self, path: Path, samples: int, dimension: int) -> None:
        self.path = path
        self._counter = path.with_suffix(".json")
        shape = (samples, dimension)
        try:
            if self._counter.exists():
                self.rows = np.lib.format.open_memmap(path, mode="r+")
                self.done = int(json.loads(self._counter.read_text())["done"])
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self.rows = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), shape)
                self.done = 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PfesError(f"{path} cannot be used: {error}; delete it to start again") from None
        if self.rows.shape != shape or self.rows.dtype != np.float32:
            raise PfesError(
                f"{path} was written with other settings: delete it, or choose another --out"
            )

    def append(self, gradients: NDArray[np.floating]) -> None:
        """Write rows after those already written."""
        stop = self.done + len(gradients)
        self.rows[self.done : stop] = gradients.reshape(len(gradients), -1)
        self.rows.flush()
        self.done = stop
        replace_file(self._counter, json.dumps({"done": stop}).encode())

    def delete(self) -> None:
        """Remove the file, which takes gigabytes for a large model."""
        del self.rows
        self.path.unlink()
        self._counter.unlink()


def collect_gradients(
    model: LocalModel, batch: Batch, length: int, seed: int, file: GradientFile
) -> Iterator[int]:
    """Fill a file with gradients at random prompts; yield the number of rows filled so far.

    Prompts are differentiated in groups, which are the same after an interruption.
    """
    row_tokens = max(len(tokens) for tokens in batch.token_ids) + length
    group_size = max(1, GROUP_TOKENS // (row_tokens * len(batch)))
    yield file.done
    while file.done < len(file.rows):
        numbers = range(file.done, min(file.done + group_size, len(file.rows)))
        prompts = np.stack([random_prompt(model, length, seed, number) for number in numbers])
        gradients = loss_gradients(model, prompts, batch)
        if not np.isfinite(gradients).all():
            raise PfesError(
                f"a gradient at random prompts {numbers.start} to {numbers.stop - 1} is not finite"
            )
        file.append(gradients)
        yield file.done
