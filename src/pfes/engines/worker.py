"""What runs in a worker: the model, loaded once, and the batches it was asked about."""

from typing import Any

import numpy as np

from pfes.models.base import Floats, Ints
from pfes.tasks.batch import Batch
from pfes.tasks.spec import TaskSpec


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
        part: tuple[int, int],
        by_candidate: bool,
        ranks: bool,
        tokens: int | None,
    ) -> tuple[Floats, Ints | None]:
        """Answer for a part of the candidates, or of the examples of one candidate."""
        if tokens is not None:
            self._model.batch_tokens = tokens
        low, high = part
        if by_candidate:
            batch = self._batch(number, held)
            own = np.array(prompts[low:high])  # what lies in the object store cannot be written
        else:
            batch = self._batch(number, held, low, high)
            own = np.array(prompts)
        if ranks:
            found: tuple[Floats, Ints | None] = self._model.ranks(own, batch)
            return found
        return self._model.logprobs(own, batch), None

    def _batch(self, number: int, held: list[Any], low: int = 0, high: int = 0) -> Batch:
        """Return a batch, fetched once, or some of its examples; a model keeps things by it."""
        import ray

        key = (number, low, high)
        if key not in self._batches:
            whole: Batch = ray.get(held[0])
            self._batches[key] = whole.take(range(low, high)) if high else whole
        return self._batches[key]
