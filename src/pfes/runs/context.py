"""All that the parts of one run share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pfes.config import RunConfig
from pfes.contract import Floats, LanguageModel
from pfes.methods import Method
from pfes.runs.earlier import EarlierPrompt
from pfes.runs.folder import RunFolder
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.read_answers import Reader, search_reader
from pfes.searches.reading import Reading
from pfes.system.clock import Clock
from pfes.tasks.task import Task

# Starts, readings and answers on test examples, by all that these depend on: runs of one model
# share them
TestCache = dict[tuple[Any, ...], Any]


@dataclass
class RunContext:
    """One run: its config, its model and task, and where it is written."""

    config: RunConfig  # resolved step by step: by method and model, then by measuring
    method: Method
    model: LanguageModel
    task: Task
    folder: RunFolder | None
    clock: Clock
    test_cache: TestCache = field(default_factory=dict)

    @property
    def no_prompt(self) -> Floats:
        """The prompt of length 0."""
        return np.empty((0, self.model.width), dtype=np.float32)

    @property
    def reader(self) -> Reader:
        """How answers are read while a prompt is searched."""
        return search_reader(self.config)

    def settle(self, **settings: Any) -> None:
        """Put resolved settings into the config."""
        self.config = self.config.model_copy(update=settings)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the time spent inside to a part of the run."""
        with self.clock.measure(part):
            yield


def write_prompt(
    context: RunContext, examples: EncodedTask, prompt: Floats, reading: Reading
) -> None:
    """Write a prompt of a run to its folder, with all that is needed to use it."""
    if context.folder is None:
        return
    batch = examples.train
    about: dict[str, Any] = {
        "model": context.config.model,
        "placement": context.config.placement,
        "end": len(batch.end),
        "task": examples.task.spec.model_dump(),
    }
    words = words_as_text(context.model, reading)
    if words:
        about["words"] = words
    context.folder.write_prompt(prompt, about, reading, batch.words)


def words_as_text(model: LanguageModel, reading: Reading) -> tuple[str, ...]:
    """Return a reading's words where their numbers say nothing: there is no vocabulary."""
    if model.takes_embeddings:
        return ()
    return tuple(model.tokenizer.decode([word]) for word in reading.words)


@dataclass(frozen=True)
class SearchOutcome:
    """What a method came to, before it is tested."""

    prompt: Floats
    initial: Floats | None  # None where there was no search
    loss: Loss
    examples: EncodedTask  # perhaps with something in front
    fields: dict[str, Any]  # of the result
    earlier: tuple[EarlierPrompt, ...] = ()
