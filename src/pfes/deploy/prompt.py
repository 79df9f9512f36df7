"""A found prompt with what is needed to use it: from a run folder or from an export."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pfes.config import THIS_PROCESS, RunConfig, read_config
from pfes.contract import Batch, Floats, LanguageModel, Placement
from pfes.errors import PfesError
from pfes.models.open import open_model
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun, read_prompt_file
from pfes.searches.encoded import encode_for
from pfes.searches.reading import PLAIN, Reading
from pfes.system.tensors import unpack
from pfes.tasks.encode import verbalizer_tokens
from pfes.tasks.example import Example
from pfes.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from pfes.deploy.attach import PromptedModel

ADAPTER, ADAPTER_KEY = "adapter_model.safetensors", "prompt_embeddings"  # PEFT's names
READING_FILE = "reading.safetensors"  # of an export
FIGURES = (
    "metric", "test", "intervals", "zero_shot", "validation", "probability", "rank",
    "test_examples", "evaluations", "beta", "seed", "method", "text",
)  # fmt: skip


@dataclass(frozen=True)
class SavedPrompt:
    """A prompt, the task it is for, and the settings that it was found with."""

    prompt: Floats  # (length, width)
    spec: TaskSpec  # with demonstrations, where the prompt has some in front
    placement: Placement
    config: RunConfig
    figures: dict[str, Any]  # of the result; empty where there is none
    reading: Reading = PLAIN
    end: int = 0  # tokens of the template's end, where the prompt stands before it
    words: tuple[str, ...] = ()  # of the reading, as text, where the model takes only text

    @classmethod
    def load(cls, path: str | Path) -> "SavedPrompt":
        """Read the prompt of a run folder or of an export."""
        saved = SavedRun(path)
        adapter = saved.path / ADAPTER
        if adapter.exists():
            prompt, about = read_prompt_file(adapter, ADAPTER_KEY)
        else:
            prompt, about = saved.read_prompt()
        try:
            spec = TaskSpec.model_validate(about["task"])
            placement = TypeAdapter(Placement).validate_python(about["placement"])
            exported = about.get("config")  # an export has its settings in the same file
            exported = exported if exported is None else dict(exported)
            figures = dict(about.get("figures", {}))
            end = int(about.get("end", 0))
            words = tuple(map(str, about.get("words", ())))
        except (KeyError, TypeError, ValueError, ValidationError):
            raise PfesError(f"{path}: its prompt does not say what it is for") from None
        if exported is not None:
            config = read_config(exported)
            reading = _exported_reading(saved.path)
            return cls(prompt, spec, placement, config, figures, reading, end)
        figures = _figures(saved.result) if saved.finished else {}
        read = (about["reading"], end, words)
        return cls(prompt, spec, placement, saved.config, figures, *read)

    @classmethod
    def of_result(cls, result: Result) -> "SavedPrompt":
        """Take the prompt of a search that just ended."""
        config = read_config(result.config)
        assert result.spec is not None
        about = (config.placement, config, _figures(result), result.fitted)
        return cls(result.prompt, result.spec, *about, result.end, result.words)

    def open_model(
        self, *, device: str | None = None, trust_remote_code: bool = False, **address: str | None
    ) -> LanguageModel:
        """Open the model that the prompt was found on, in this process.

        `address` may name another server of the same model: `model`, `tokenizer`, `served_name`;
        one that is None stays as it was in the run.
        """
        here = {"device": device, "trust_remote_code": trust_remote_code}
        changed = {name: value for name, value in address.items() if value is not None}
        config = self.config.model_copy(update=THIS_PROCESS | here | changed)
        return open_model(config, self.spec)

    def probabilities(self, model: LanguageModel, examples: Sequence[Example]) -> Floats:
        """Return the labels' probabilities for some examples, `(examples, labels)`."""
        batch = self.encode(model, examples).with_words(self.reading.words)
        logprobs = model.logprobs(self.prompt[None], batch)[0]
        return np.exp(self.reading.log_probabilities(logprobs)).astype(np.float32)

    def encode(self, model: LanguageModel, examples: Sequence[Example]) -> Batch:
        """Return examples as the model takes them beside the prompt."""
        length, width = self.prompt.shape
        if width != model.width:
            raise PfesError(
                f"the prompt is {width} wide and the model's embedding {model.width}: "
                f"it was found on {self.config.model}"
            )
        if not model.takes_embeddings:
            model.tokenizer.learn(self.words)
        return encode_for(model, self.spec, examples, length, self.placement)

    def words_of(self, model: LanguageModel) -> tuple[int, ...]:
        """Return the words that are read: the labels' own, then the further ones."""
        model.tokenizer.learn(self.words)
        return (*verbalizer_tokens(self.spec, model.tokenizer), *self.reading.words)

    def attach(self, model: Any) -> "PromptedModel":
        """Return a plain transformers model that answers as if each text came with the prompt."""
        from pfes.deploy.attach import PromptedModel

        return PromptedModel(model, self.prompt, self.placement, self.end)


def _exported_reading(folder: Path) -> Reading:
    file = folder / READING_FILE
    if not file.exists():
        return PLAIN
    arrays, about = unpack(file)
    try:
        return Reading.from_arrays(arrays, about["rung"])
    except (KeyError, ValueError):
        raise PfesError(f"{file} does not hold a reading") from None


def _figures(result: Result) -> dict[str, Any]:
    content = result.model_dump(mode="json")
    return {name: content[name] for name in FIGURES}


def load_prompt(path: str | Path) -> SavedPrompt:
    """Read a found prompt from a run folder or an export."""
    return SavedPrompt.load(path)
