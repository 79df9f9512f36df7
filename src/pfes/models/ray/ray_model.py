"""One model in several Ray workers: a language model that divides its work among them.

Ray does the scheduling, the transport and the faults: a worker that dies is started again, and what
it was asked is asked again.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pfes.config import RunConfig
from pfes.contract import Batch, Family, Floats, Ints, LanguageModel
from pfes.errors import OutOfMemoryError, PfesError, one_line
from pfes.models.ray.cluster import (
    check_room,
    gpus_of_worker,
    most_threads,
    most_workers,
    start_ray,
)
from pfes.models.ray.ray_worker import RayWorker
from pfes.models.source import ModelSource, find_model
from pfes.system.memory import is_out_of_memory
from pfes.tasks.spec import TaskSpec

RESTARTS = 3  # of one worker, before it is given up
OUT_OF_MEMORY = (
    "a worker ran out of memory: lower --max-batch-tokens, use fewer --workers, or --dtype float16"
)


class RayModel(LanguageModel):
    """A model whose answers come from workers that each hold it.

    Work is divided by candidate and, where there are fewer of them than workers, as (1+1)-ES has
    one, by example. Answers are put together by index, so the order of their arrival never matters.
    """

    def __init__(
        self,
        config: RunConfig,
        spec: TaskSpec | None,
        source: ModelSource | None = None,
        worker: type[RayWorker] = RayWorker,
    ) -> None:
        self._ray = start_ray(config)
        self.workers = config.workers or most_workers(self._ray, config)
        self.threads = config.threads or most_threads(self._ray, config, self.workers)
        check_room(self._ray, config, self.workers, self.threads)
        remote = self._ray.remote(worker).options(
            num_cpus=self.threads,
            num_gpus=gpus_of_worker(self._ray, config),
            max_restarts=RESTARTS,
            max_task_retries=-1,
        )
        own = config.model_copy(update={"engine": "serial"})
        settings = (own.model_dump(), spec and spec.model_dump(), self.threads)
        self._workers = [remote.remote(*settings) for _ in range(self.workers)]
        try:
            about = self._get([worker.describe.remote() for worker in self._workers])[0]
        except PfesError:
            self.close()
            raise
        self.name = config.model
        self.family: Family = about["family"]
        self.width = int(about["width"])
        self.max_length = int(about["max_length"])
        self.precision = about["precision"]
        self._vocabulary = int(about["vocabulary"])
        self.tokenizer = (source or find_model(config.model, config.trust_remote_code)).tokenizer
        self._batches: WeakKeyDictionary[Batch, tuple[int, Any]] = WeakKeyDictionary()
        self._count = 0
        self._batch_tokens = config.batch_tokens  # of a worker's passes; goes with every question

    @property
    def vocabulary(self) -> int:
        return self._vocabulary

    def close(self) -> None:
        """End the workers, so that others find room."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []

    def embed(self, tokens: Sequence[int]) -> Floats:
        embedded: Floats = self._get([self._workers[0].embed.remote(list(tokens))])[0]
        return embedded

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        return self._answers(prompts, batch, ranks=False)[0]

    def ranks(self, prompts: Floats, batch: Batch) -> tuple[Floats, Ints | None]:
        return self._answers(prompts, batch, ranks=True)

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> int:
        """Measure on one worker, for its share of the candidates."""
        share = -(-candidates // self.workers)
        measured = self._workers[0].choose_batch_tokens.remote(prompt, batch, share)
        return int(self._get([measured])[0])

    def set_batch_tokens(self, tokens: int | None) -> None:
        self._batch_tokens = tokens

    def _answers(self, prompts: Floats, batch: Batch, ranks: bool) -> tuple[Floats, Ints | None]:
        number, held = self._hold(batch)
        shared = self._ray.put(np.ascontiguousarray(prompts))  # travels once
        by_candidate = shares(len(prompts), self.workers)
        by_example = shares(len(batch), max(1, self.workers // len(by_candidate)))
        parts = [(own, some) for own in by_candidate for some in by_example]
        calls = [
            worker.answers.remote(number, [held], shared, *part, ranks, self._batch_tokens)
            for worker, part in zip(self._workers, parts, strict=False)
        ]
        shape = (len(prompts), len(batch), len(batch.words))
        logprobs, positions = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
        for (own, some), (answer, ranked) in zip(parts, self._get(calls), strict=True):
            logprobs[slice(*own), slice(*some)] = answer
            if ranked is not None:
                positions[slice(*own), slice(*some)] = ranked
        return logprobs, positions if ranks else None

    def _hold(self, batch: Batch) -> tuple[int, Any]:
        """Return a number and a reference by which workers know a batch; it travels once."""
        if batch not in self._batches:
            self._count += 1
            self._batches[batch] = (self._count, self._ray.put(batch))
        return self._batches[batch]

    def _get(self, calls: list[Any]) -> list[Any]:
        errors = self._ray.exceptions
        try:
            answers: list[Any] = self._ray.get(calls)
            return answers
        except errors.OutOfMemoryError:
            raise PfesError(OUT_OF_MEMORY) from None
        except errors.RayTaskError as error:
            raise explain(error.cause) from None
        except errors.RayActorError as error:
            raise PfesError(
                f"a worker died {RESTARTS + 1} times: {one_line(error)}; if it ran out of memory, "
                "use fewer --workers"
            ) from None


def explain(cause: BaseException) -> PfesError:
    """Return what happened in a worker as an error of one line."""
    if isinstance(cause, OutOfMemoryError) or is_out_of_memory(cause):
        return PfesError(OUT_OF_MEMORY)
    if isinstance(cause, PfesError):
        return cause
    return PfesError(f"a worker failed: {type(cause).__name__}: {one_line(cause)}")


def shares(total: int, workers: int) -> list[tuple[int, int]]:
    """Divide `total` indices into as many ranges of like size as there are workers, none empty."""
    ends = [total * i // workers for i in range(workers + 1)]
    return [(low, high) for low, high in pairwise(ends) if low < high]
