"""What runs in a Ray worker: the model, loaded once, and the batches it was asked about."""

import os
from typing import Any

import numpy as np

from pfes.config import make_config
from pfes.contract import Batch, Floats, Ints
from pfes.models.local.load import open_local_model
from pfes.models.local.local_model import LocalModel
from pfes.tasks.spec import TaskSpec

KEPT = 8  # batches that a worker remembers: those of training and validation, and some to test


class RayWorker:
    """Answers for a share of the candidates, or of the examples.

    The model is loaded when first needed, so that an error while loading reaches the caller. A
    worker that was started again has forgotten everything and loads it again.
    """

    def __init__(self, config: dict[str, Any], spec: dict[str, Any] | None, threads: int) -> None:
        self._settings = (config, spec)
        self._threads = threads
        self._loaded: LocalModel | None = None
        self._batches: dict[tuple[int, int, int], Batch] = {}

    @property
    def _model(self) -> LocalModel:
        if self._loaded is None:
            config, spec = self._settings
            own = make_config(**config | {"threads": self._threads})
            task = None if spec is None else TaskSpec.model_validate(spec)
            self._loaded = open_local_model(own, task)
        return self._loaded

    def describe(self) -> dict[str, Any]:
        """Load the model and return its attributes."""
        names = ("family", "width", "max_length", "vocabulary", "precision")
        return {name: getattr(self._model, name) for name in names}

    def pid(self) -> int:
        """Return the number of the worker's process."""
        return os.getpid()

    def embed(self, tokens: list[int]) -> Floats:
        return self._model.embed(tokens)

    def choose_batch_tokens(
        self, precision: str | None, prompt: Floats, batch: Batch, candidates: int
    ) -> int:
        model = self._model.for_search(precision or self._model.precision, len(prompt), batch)
        return model.choose_batch_tokens(prompt, batch, candidates)

    def for_search(self, precision: str | None, prompt_length: int, batch: Batch) -> str | None:
        """Return the precision of what searches here."""
        return self._model.for_search(precision, prompt_length, batch).precision

    def answers(
        self,
        number: int,
        held: list[Any],
        prompts: Floats,
        candidates: tuple[int, int],
        examples: tuple[int, int],
        ranks: bool,
        tokens: int | None,
        precision: str | None = None,
    ) -> tuple[Floats, Ints | None]:
        """Answer for some of the candidates and some of the examples."""
        batch = self._batch(number, held, examples)
        model = self._model.for_search(precision or self._model.precision, prompts.shape[1], batch)
        model.set_batch_tokens(tokens)
        own = np.array(prompts[slice(*candidates)])  # what lies in the object store is read-only
        if ranks:
            return model.ranks(own, batch)
        return model.logprobs(own, batch), None

    def _batch(self, number: int, held: list[Any], examples: tuple[int, int]) -> Batch:
        """Return some examples of a batch, fetched once: the model caches work by batch."""
        import ray

        key = (number, *examples)
        if key not in self._batches:
            while len(self._batches) >= KEPT:
                del self._batches[next(iter(self._batches))]
            whole: Batch = ray.get(held[0])
            part = range(*examples)
            self._batches[key] = whole if len(part) == len(whole) else whole.take(part)
        return self._batches[key]
