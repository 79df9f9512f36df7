"""The end of a run: the test set is read, once, and what was found is written."""

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from pfes.clock import Clock
from pfes.config import RunConfig
from pfes.folder import RunFolder
from pfes.models.base import Floats, LanguageModel
from pfes.models.nearest import nearest_tokens
from pfes.objective import Loss, encode_for
from pfes.result import Result, Stage
from pfes.scoring import Score, interval, score, score_steps
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task

Tested = dict[tuple[Any, ...], Score]  # by all that a score on test sentences depends on


@dataclass(frozen=True)
class Found:
    """What a method came to, before it is tested."""

    spec: TaskSpec  # the task's, perhaps with demonstrations
    prompt: Floats
    initial: Floats | None  # None where there was no search
    loss: Loss
    figures: dict[str, Any]  # fields of the result


def finish(
    config: RunConfig,
    model: LanguageModel,
    task: Task,
    found: Found,
    folder: RunFolder | None,
    clock: Clock,
    tested: Tested,
) -> Iterator[Stage | Result]:
    """Read the test set, once, and write prompt and result."""
    empty = np.empty((0, model.width), dtype=np.float32)
    versions = {"zero_shot": (task.spec, empty), "test": (found.spec, found.prompt)}
    if found.initial is not None:
        versions["initial"] = (task.spec, found.initial)
    room = max(len(prompt) for _, prompt in versions.values())
    titles = {"zero_shot": "zero-shot", "initial": "initial prompt", "test": "found prompt"}
    scores: dict[str, Score] = {}
    losses: dict[str, float] = {}
    began = time.perf_counter()
    for name, (spec, prompt) in versions.items():
        test = encode_for(model, spec, task.test, room, config.placement)
        ranks = name == "test"
        place = (room, config.placement, config.batch_tokens, ranks)
        key = (repr((spec, task.test)), prompt.tobytes(), *place)
        if key not in tested:
            for progress in score_steps(model, spec, prompt, test, ranks=ranks):
                if isinstance(progress, Score):
                    tested[key] = progress
                else:
                    yield Stage(f"testing {titles[name]}", progress, len(test))
        scores[name] = tested[key]
        train = encode_for(model, spec, task.train, room, config.placement)
        losses[name] = score(model, spec, prompt, train).loss(found.loss)
    clock.add("testing", time.perf_counter() - began)
    if found.initial is None:
        scores["initial"], losses["initial"] = scores["zero_shot"], losses["zero_shot"]
    intervals = {name: interval(value) for name, value in scores.items()}
    intervals["gain"] = interval(scores["test"], scores["zero_shot"])
    if found.initial is not None:
        intervals["added"] = interval(scores["test"], scores["initial"])
    result = Result(
        method=config.method,
        model=config.model,
        task=task.name,
        seed=config.seed,
        metric=task.spec.metric,
        **{name: value.metric for name, value in scores.items()},
        **found.figures,
        intervals=intervals,
        train_loss=losses["test"],
        initial_train_loss=losses["initial"],
        probability=scores["test"].probability,
        rank=scores["test"].rank,
        test_examples=len(task.test),
        config=config.model_dump(),
        environment=environment(),
        profile=clock.seconds,
        nearest=nearest_tokens(model, found.prompt),
        prompt=found.prompt,
    )
    if folder is not None:
        folder.write_answers(_answers(task, scores["zero_shot"], scores["test"]))
        about = {"model": config.model, "placement": config.placement}
        folder.save_prompt(found.prompt, about | {"task": found.spec.model_dump()})
        folder.write_json(folder.result, result.model_dump(mode="json"))
    yield result


def _answers(task: Task, before: Score, after: Score) -> Iterator[dict[str, Any]]:
    """Yield each test example with the probabilities of its labels' words, before and after."""
    labels = [str(label) for label in task.spec.labels]
    for example, *logprobs in zip(task.test, before.logprobs, after.logprobs, strict=True):
        versions = [dict(zip(labels, np.exp(row).tolist(), strict=True)) for row in logprobs]
        yield {
            "fields": example.fields,
            "label": labels[example.label],
            "zero_shot": versions[0],
            "found": versions[1],
        }


def environment() -> dict[str, Any]:
    """Return what a run's bytes depend on beside its config."""
    import torch

    packages = ("pfes", "numpy", "torch", "transformers")
    return {name: version(name) for name in packages} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
