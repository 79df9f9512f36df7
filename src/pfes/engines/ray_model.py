"""One model in several Ray workers: a language model that parts its work between them.

Ray does the scheduling, the transport and the faults: a worker that dies is started again, and what
it was asked is asked again.
"""

import logging
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pfes.config import RunConfig
from pfes.engines.worker import Worker
from pfes.errors import OutOfMemoryError, PfesError
from pfes.memory import is_out_of_memory
from pfes.models.base import Floats, Ints
from pfes.models.load import load_tokenizer
from pfes.tasks.batch import Batch
from pfes.tasks.spec import Family, TaskSpec

RESTARTS = 3  # of one worker, before it is given up


class RayModel:
    """A `LanguageModel` whose answers come from workers that each hold the model.

    Work is parted by candidate and, where there are fewer of them than workers, as (1+1)-ES has
    one, by example. Answers are put together by place, so the order of their arrival never matters.
    """

    def __init__(self, config: RunConfig, spec: TaskSpec, worker: type[Worker] = Worker) -> None:
        self._ray = start_ray(config)
        self.workers = config.workers or _workers_there(self._ray, config)
        self.threads = config.threads or _threads_there(self._ray, config, self.workers)
        check_room(self._ray, config, self.workers, self.threads)
        remote = self._ray.remote(worker).options(
            num_cpus=self.threads,
            num_gpus=config.gpus_per_worker,
            max_restarts=RESTARTS,
            max_task_retries=-1,
        )
        own = config.model_copy(update={"engine": "serial"})
        settings = (own.model_dump(), spec.model_dump(), self.threads)
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
        self.vocabulary = int(about["vocabulary"])
        self.tokenizer = load_tokenizer(config.model, config.trust_remote_code)
        self._batches: WeakKeyDictionary[Batch, tuple[int, Any]] = WeakKeyDictionary()
        self._count = 0
        self.batch_tokens: int | None = None  # of a worker's passes; goes with every question

    def close(self) -> None:
        """End the workers, so that others find room."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []

    def embed(self, tokens: Sequence[int]) -> Floats:
        found: Floats = self._get([self._workers[0].embed.remote(list(tokens))])[0]
        return found

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        return self._answers(prompts, batch, ranks=False)[0]

    def ranks(self, prompts: Floats, batch: Batch) -> tuple[Floats, Ints | None]:
        return self._answers(prompts, batch, ranks=True)

    def calibrate(self, prompt: Floats, batch: Batch, candidates: int) -> int:
        """Measure on one worker how many tokens a pass should have, for its share."""
        share = -(-candidates // self.workers)
        return int(self._get([self._workers[0].calibrate.remote(prompt, batch, share)])[0])

    def _answers(self, prompts: Floats, batch: Batch, ranks: bool) -> tuple[Floats, Ints | None]:
        number, held = self._hold(batch)
        shared = self._ray.put(np.ascontiguousarray(prompts))  # travels once
        by_candidate = shares(len(prompts), self.workers)
        by_example = shares(len(batch), max(1, self.workers // len(by_candidate)))
        parts = [(own, some) for own in by_candidate for some in by_example]
        asked = [
            self._workers[i].answers.remote(number, [held], shared, *part, ranks, self.batch_tokens)
            for i, part in enumerate(parts)
        ]
        shape = (len(prompts), len(batch), len(batch.words))
        logprobs, places = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
        for (own, some), (answer, where) in zip(parts, self._get(asked), strict=True):
            logprobs[slice(*own), slice(*some)] = answer
            if where is not None:
                places[slice(*own), slice(*some)] = where
        return logprobs, places if ranks else None

    def _hold(self, batch: Batch) -> tuple[int, Any]:
        """Return a number and a reference by which workers know a batch; it travels once."""
        if batch not in self._batches:
            self._count += 1
            self._batches[batch] = (self._count, self._ray.put(batch))
        return self._batches[batch]

    def _get(self, asked: list[Any]) -> list[Any]:
        errors = self._ray.exceptions
        try:
            found: list[Any] = self._ray.get(asked)
            return found
        except errors.OutOfMemoryError:
            raise PfesError(OUT_OF_MEMORY) from None
        except errors.RayTaskError as error:
            raise explain(error.cause) from None
        except errors.RayActorError as error:
            words = " ".join(str(error).split())[:300]
            raise PfesError(
                f"a worker died {RESTARTS + 1} times: {words}; if it ran out of memory, use fewer "
                "--workers"
            ) from None


OUT_OF_MEMORY = (
    "a worker ran out of memory: lower --max-batch-tokens, use fewer --workers, or --dtype float16"
)


def explain(cause: BaseException) -> PfesError:
    """Return what happened in a worker as one line of the worker's own."""
    if isinstance(cause, OutOfMemoryError) or is_out_of_memory(cause):
        return PfesError(OUT_OF_MEMORY)
    if isinstance(cause, PfesError):
        return cause
    words = " ".join(str(cause).split())[:300]
    return PfesError(f"a worker failed: {type(cause).__name__}: {words}")


def shares(total: int, workers: int) -> list[tuple[int, int]]:
    """Part `total` places into as many runs of like length as there are workers, none empty."""
    ends = [total * i // workers for i in range(workers + 1)]
    return [(low, high) for low, high in pairwise(ends) if low < high]


def start_ray(config: RunConfig) -> Any:
    """Start Ray here, or join the cluster that `--engine ray:ADDRESS` names."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise PfesError("--engine ray needs the package ray: pip install 'pfes[ray]'") from None
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    address = config.engine.partition(":")[2]
    if address:
        options = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    elif config.workers is not None:
        needed = config.workers * (config.threads or 1)
        options["num_cpus"] = max(needed, os.cpu_count() or 1)
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        words = " ".join(str(error).split())[:200]
        raise PfesError(f"--engine {config.engine}: Ray cannot be reached: {words}") from None
    return ray


def check_room(ray: Any, config: RunConfig, workers: int, threads: int) -> None:
    """Refuse workers that would wait for ever."""
    room = _room(ray, threads, config.gpus_per_worker)
    if workers > room:
        gpus = f" and {config.gpus_per_worker:g} GPUs" if config.gpus_per_worker else ""
        raise PfesError(
            f"--workers {workers}: with {threads} threads{gpus} each, Ray has room for {room}: "
            "fewer --workers or --threads, or a larger cluster"
        )


def _room(ray: Any, threads: int, gpus: float) -> int:
    """Return how many workers find a place; each is on one node."""
    found = 0
    for node in ray.nodes():
        there = node["Resources"] if node["Alive"] else {}
        places = there.get("CPU", 0) // threads
        found += int(min(places, there.get("GPU", 0) // gpus) if gpus else places)
    return found


def _workers_there(ray: Any, config: RunConfig) -> int:
    """Return how many workers the cluster has room for."""
    return max(1, _room(ray, config.threads or 1, config.gpus_per_worker))


def _threads_there(ray: Any, config: RunConfig, workers: int) -> int:
    """Return how many threads each of so many workers may have, at most."""
    most = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes())
    fitting = (n for n in range(most, 0, -1) if _room(ray, n, config.gpus_per_worker) >= workers)
    return next(fitting, 1)
