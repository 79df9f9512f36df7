"""All that the parts of one run share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pfes.config import RunConfig
from pfes.contract import Floats, LanguageModel
from pfes.methods import Method
from pfes.runs.folder import RunFolder
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.scoring import Score
from pfes.system.clock import Clock
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task

# Scores on test examples, by all that they depend on: runs of one model share them
ScoreCache = dict[tuple[Any, ...], Score]


@dataclass
class RunContext:
    """One run: its config, its model and task, and where it is written."""

    config: RunConfig  # resolved step by step: by method and model, then by measuring
    method: Method
    model: LanguageModel
    task: Task
    folder: RunFolder | None
    clock: Clock
    test_cache: ScoreCache = field(default_factory=dict)

    def settle(self, **settings: Any) -> None:
        """Put resolved settings into the config."""
        self.config = self.config.model_copy(update=settings)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the time spent inside to a part of the run."""
        with self.clock.measure(part):
            yield


@dataclass(frozen=True)
class SearchOutcome:
    """What a method came to, before it is tested."""

    prompt: Floats
    initial: Floats | None  # None where there was no search
    loss: Loss
    spec: TaskSpec  # the task's, perhaps with demonstrations in front
    examples: EncodedTask  # the task's own, without demonstrations
    fields: dict[str, Any]  # of the result
