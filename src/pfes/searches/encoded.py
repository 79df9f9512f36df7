"""The examples of a task as a model takes them, each part encoded once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pfes.contract import Batch, LanguageModel, Placement
from pfes.errors import PfesError
from pfes.tasks.encode import encode
from pfes.tasks.example import Example
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task


@dataclass(frozen=True, eq=False)
class EncodedTask:
    """A task's examples with the room that a prompt of `prompt_length` leaves."""

    model: LanguageModel
    task: Task
    prompt_length: int
    placement: Placement = "prefix"

    @cached_property
    def train(self) -> Batch:
        return self._encode(self.task.train)

    @cached_property
    def validation(self) -> Batch:
        return self._encode(self.task.validation)

    @cached_property
    def labelled(self) -> Batch:
        """Training and validation examples together: what a result's reading is fitted to."""
        return self._encode((*self.task.train, *self.task.validation))

    @cached_property
    def test(self) -> Batch:
        return self._encode(self.task.test)

    @cached_property
    def unlabelled(self) -> Batch:
        return self._encode(self.task.unlabelled)

    def _encode(self, examples: Sequence[Example]) -> Batch:
        spec, length = self.task.spec, self.prompt_length
        return encode_for(self.model, spec, examples, length, self.placement)


def encode_for(
    model: LanguageModel,
    spec: TaskSpec,
    examples: Sequence[Example],
    prompt_length: int,
    placement: Placement = "prefix",
) -> Batch:
    """Encode examples with the room that a prompt leaves."""
    room = text_room(model, prompt_length)
    as_text = not model.takes_embeddings
    return encode(spec, examples, model.tokenizer, model.family, room, placement, as_text)


def text_room(model: LanguageModel, prompt_length: int) -> int:
    """Return how many tokens a prompt leaves for the text."""
    room = model.max_length - prompt_length
    if room < 1:
        raise PfesError(
            f"a prompt of {prompt_length} tokens leaves no room for text: "
            f"{model.name} takes {model.max_length} in all"
        )
    return room
