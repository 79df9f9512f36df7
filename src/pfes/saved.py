"""A found prompt with what is needed to use it: the prompt file of a run, read back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.models.base import Floats, LanguageModel
from pfes.objective import encode_for
from pfes.scoring import Score, score_steps
from pfes.tasks.batch import Placement
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Example


@dataclass(frozen=True)
class SavedPrompt:
    """A prompt, the task it is for, and the name of the model it was found on."""

    prompt: Floats  # (length, width)
    spec: TaskSpec
    model: str
    placement: Placement

    @classmethod
    def load(cls, folder: RunFolder) -> "SavedPrompt":
        """Read a run's prompt; the run's other files are not needed."""
        prompt, about = folder.load_prompt()
        try:
            spec = TaskSpec.model_validate(about["task"])
            placement = TypeAdapter(Placement).validate_python(about["placement"])
            return cls(prompt, spec, str(about["model"]), placement)
        except (KeyError, TypeError, ValidationError):
            raise PfesError(f"{folder.prompt} does not say which task it is for") from None

    def score_steps(
        self, model: LanguageModel, examples: Sequence[Example], ranks: bool = False
    ) -> Iterator[int | Score]:
        """Score examples with the prompt; yield how many are done, and the score at the end."""
        length, width = self.prompt.shape
        if width != model.width:
            raise PfesError(
                f"the prompt is {width} wide and the model's embedding {model.width}: "
                f"it was found on {self.model}"
            )
        batch = encode_for(model, self.spec, examples, length, self.placement)
        return score_steps(model, self.spec, self.prompt, batch, ranks)


def label_probabilities(logprobs: Floats) -> Floats:
    """Return probabilities over the labels alone, `(examples, labels)`, from `Score.logprobs`."""
    weights = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
