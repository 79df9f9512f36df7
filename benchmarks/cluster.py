"""Ray workers: what a second one brings, and what the engine itself costs when there are many."""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

import pfes
from benchmarks.evaluation import MODEL, REPEATS, TASK
from benchmarks.timing import Row, in_turns, seconds
from pfes.config import make_config
from pfes.models.ray.ray_model import RayModel
from pfes.models.ray.ray_worker import RayWorker
from pfes.searches.encoded import encode_for

LENGTH, CANDIDATES = 10, 4
MANY, PAPER_LENGTH, PAPER_WIDTH = 64, 50, 1024  # of a generation and a prompt that size travel


def sleeper(evaluation: float) -> type[RayWorker]:
    """Return a worker that sleeps for a function evaluation's seconds instead of computing it.

    A class made in a function travels whole, so its process need not load torch.
    """

    class Sleeper(RayWorker):
        def describe(self) -> dict[str, Any]:
            return {
                "family": "causal",
                "width": PAPER_WIDTH,
                "max_length": 512,
                "vocabulary": 1,
                "precision": None,
            }

        def answers(self, number: int, held: list[Any], prompts: Any, *rest: Any) -> Any:
            (first, last), (low, high), *_ = rest
            batch = self._batch(number, held, (low, high))
            time.sleep(evaluation * (last - first))
            return np.zeros((last - first, len(batch), len(batch.words)), dtype=np.float32), None

    return Sleeper


def ray_workers() -> Iterator[Row]:
    import ray

    task = pfes.load_task(TASK)
    common = {"model": MODEL, "task": TASK, "engine": "ray", "threads": 1}
    ray.init(num_cpus=MANY, include_dashboard=False, log_to_driver=False)
    try:
        models = [RayModel(make_config(**common, workers=count), task.spec) for count in (1, 2)]
        batch = encode_for(models[0], task.spec, task.train, LENGTH)
        rng = np.random.default_rng(0)
        shape = (CANDIDATES, LENGTH, models[0].width)
        prompts = 0.05 * rng.standard_normal(shape).astype(np.float32)
        one, two = in_turns(REPEATS, *(lambda m=m: m.logprobs(prompts, batch) for m in models))
        gap = np.abs(models[0].logprobs(prompts, batch) - models[1].logprobs(prompts, batch)).max()
        for model in models:
            model.close()
        yield Row(
            f"2 one-thread Ray workers, {MODEL}, l = {LENGTH}, {CANDIDATES} candidates",
            "1 one-thread worker", one / two, 1.8, "at least",
            f"{one:.2f} s, {two:.2f} s", float(gap), 1e-3,
        )  # fmt: skip
        evaluation = one / CANDIDATES
        own = make_config(**common, workers=MANY)
        sleepers = RayModel(own, task.spec, worker=sleeper(evaluation))
        prompts = rng.standard_normal((MANY, PAPER_LENGTH, PAPER_WIDTH)).astype(np.float32)
        sleepers.logprobs(prompts, batch)
        took = median(seconds(lambda: sleepers.logprobs(prompts, batch)) for _ in range(REPEATS))
        sleepers.close()
        yield Row(
            f"a generation of {MANY} over {MANY} workers that sleep for one FE",
            "one FE", evaluation / took, 0.9, "at least",
            f"FE {evaluation:.2f} s, generation {took:.2f} s; "
            f"{prompts.nbytes / 1e6:.0f} MB of prompts travel",
        )  # fmt: skip
    finally:
        ray.shutdown()
