"""What runs in a worker: the model, loaded once, and the batches it was asked about."""

import os
from typing import Any

import numpy as np

from pfes.models.base import Floats, Ints
from pfes.tasks.batch import Batch
from pfes.tasks.spec import TaskSpec

KEPT = 8  # batches that a worker remembers: those of training and validation, and some to test


class Worker:
    """Answers for a share of the candidates, or of the examples.

    The model is loaded when first needed, so that its own message reaches whoever asked; a worker
    that was started again has forgotten everything and loads it again.
    """

    def __init__(self, config: dict[str, Any], spec: dict[str, Any], threads: int) -> None:
        self._settings = (config, spec)
        self._threads = threads
        self._opened: Any = None
        self._batches: dict[tuple[int, int, int], Batch] = {}

    @property
    def _model(self) -> Any:
        if self._opened is None:
            import torch

            from pfes.assemble import open_model
            from pfes.config import make_config

            torch.set_num_threads(self._threads)
            config, spec = self._settings
            self._opened = open_model(make_config(**config), TaskSpec.model_validate(spec))
        return self._opened

    def describe(self) -> dict[str, Any]:
        """Load the model; return what whoever asks must know of it."""
        names = ("family", "width", "max_length", "vocabulary")
        return {name: getattr(self._model, name) for name in names}

    def pid(self) -> int:
        """Return the number of the worker's process."""
        return os.getpid()

    def embed(self, tokens: list[int]) -> Floats:
        found: Floats = self._model.embed(tokens)
        return found

    def calibrate(self, prompt: Floats, batch: Batch, candidates: int) -> int:
        from pfes.models.calibrate import calibrate

        return calibrate(self._model, prompt, batch, candidates)

    def answers(
        self,
        number: int,
        held: list[Any],
        prompts: Floats,
        candidates: tuple[int, int],
        examples: tuple[int, int],
        ranks: bool,
        tokens: int | None,
    ) -> tuple[Floats, Ints | None]:
        """Answer for some of the candidates and some of the examples."""
        if tokens is not None:
            self._model.batch_tokens = tokens
        batch = self._batch(number, held, examples)
        own = np.array(prompts[slice(*candidates)])  # what lies in the object store is read-only
        if ranks:
            found: tuple[Floats, Ints | None] = self._model.ranks(own, batch)
            return found
        return self._model.logprobs(own, batch), None

    def _batch(self, number: int, held: list[Any], examples: tuple[int, int]) -> Batch:
        """Return some examples of a batch, fetched once: a model keeps things by them."""
        import ray

        key = (number, *examples)
        if key not in self._batches:
            while len(self._batches) >= KEPT:
                del self._batches[next(iter(self._batches))]
            whole: Batch = ray.get(held[0])
            part = range(*examples)
            self._batches[key] = whole if len(part) == len(whole) else whole.take(part)
        return self._batches[key]
