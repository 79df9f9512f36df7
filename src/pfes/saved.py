"""A found prompt with what is needed to use it: of a run folder, or of an export."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pfes.config import RunConfig, make_config
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.models.base import Floats, LanguageModel
from pfes.objective import encode_for
from pfes.run import read_config, read_result
from pfes.tasks.batch import Batch, Placement
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Example
from pfes.tensors import unpack

if TYPE_CHECKING:
    from pfes.attach import PromptedModel

ADAPTER, ADAPTER_KEY = "adapter_model.safetensors", "prompt_embeddings"  # PEFT's names
FIGURES = (
    "metric", "test", "intervals", "zero_shot", "validation", "probability", "rank",
    "test_examples", "evaluations", "beta", "seed", "method", "text",
)  # fmt: skip


@dataclass(frozen=True)
class SavedPrompt:
    """A prompt, the task it is for, and the settings that it was found with."""

    prompt: Floats  # (length, width)
    spec: TaskSpec
    placement: Placement
    config: RunConfig
    figures: dict[str, Any]  # of the result; empty where there is none

    @classmethod
    def load(cls, path: str | Path) -> "SavedPrompt":
        """Read the prompt of a run folder or of an export."""
        folder = RunFolder(path)
        if (folder.path / ADAPTER).exists():
            arrays, about = unpack(folder.path / ADAPTER)
            prompt = arrays.get(ADAPTER_KEY)
            if prompt is None or prompt.ndim != 2:
                raise PfesError(f"{folder.path / ADAPTER} does not hold a prompt")
        else:
            prompt, about = folder.load_prompt()
        try:
            spec = TaskSpec.model_validate(about["task"])
            placement = TypeAdapter(Placement).validate_python(about["placement"])
            stored = about.get("config")
            exported = None if stored is None else dict(stored) | {"trust_remote_code": False}
            figures = dict(about.get("figures", {}))
        except (KeyError, TypeError, ValueError, ValidationError):
            raise PfesError(f"{folder.path}: its prompt does not say what it is for") from None
        if exported is None:
            config, result = read_config(folder), read_result(folder)
            found = {} if result is None else result.model_dump(mode="json")
            figures = {name: found[name] for name in FIGURES if name in found}
        else:
            config = make_config(**exported)
        return cls(prompt.astype(np.float32), spec, placement, config, figures)

    def encode(self, model: LanguageModel, examples: Sequence[Example]) -> Batch:
        """Return examples as the model takes them beside the prompt."""
        length, width = self.prompt.shape
        if width != model.width:
            raise PfesError(
                f"the prompt is {width} wide and the model's embedding {model.width}: "
                f"it was found on {self.config.model}"
            )
        return encode_for(model, self.spec, examples, length, self.placement)

    def attach(self, model: Any) -> "PromptedModel":
        """Return a plain transformers model with the prompt in its place."""
        from pfes.attach import PromptedModel

        return PromptedModel(model, self.prompt, self.placement)


def load_prompt(path: str | Path) -> SavedPrompt:
    """Read a found prompt from a run folder or an export."""
    return SavedPrompt.load(path)


def label_probabilities(logprobs: Floats) -> Floats:
    """Return probabilities over the labels alone, `(examples, labels)`, from log-probabilities."""
    weights = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
