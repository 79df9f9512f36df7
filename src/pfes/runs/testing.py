"""The end of a run: the test set is read, once, and what was found is written."""

import os
import platform
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.models.nearest_tokens import nearest_tokens
from pfes.runs.context import RunContext, SearchOutcome
from pfes.runs.figure import draw_convergence
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun, steps_with_beta
from pfes.searches.read_answers import Reader
from pfes.searches.reading import PLAIN
from pfes.searches.scoring import Score, interval, score, score_steps
from pfes.system.stages import Stage
from pfes.tasks.task import Task

PLAIN_READER = Reader("plain", 0)
TITLES = {"zero_shot": "zero-shot", "initial": "initial prompt", "test": "found prompt"}


def evaluate_outcome(context: RunContext, outcome: SearchOutcome) -> Generator[Stage, None, Result]:
    """Test what was found beside what it began with; write prompt, answers, figure and result."""
    began = time.perf_counter()
    model, own = context.model, outcome.examples
    prompted = own if outcome.spec == own.task.spec else replace(own, spec=outcome.spec)
    empty = np.empty((0, model.width), dtype=np.float32)
    versions = {"zero_shot": (own, empty), "test": (prompted, outcome.prompt)}
    if outcome.initial is not None:
        versions["initial"] = (own, outcome.initial)
    config = context.config
    reader = Reader(config.reading, config.answer_words)
    scores: dict[str, Score] = {}
    losses: dict[str, float] = {}
    for name, (examples, prompt) in versions.items():
        spec, ranks = examples.spec or examples.task.spec, name == "test"
        sizes = (examples.prompt_length, examples.placement, config.batch_tokens)
        read = PLAIN_READER if name == "zero_shot" else reader
        parts = (spec, examples.task.test, examples.task.train, examples.task.validation)
        asked = (spec, examples.task.test) if read.is_plain else parts
        key = (repr(asked), prompt.tobytes(), *sizes, ranks, read)
        if key not in context.test_cache:
            reading = read.fit(model, prompt, examples.labelled) if not read.is_plain else PLAIN
            steps = score_steps(model, spec, prompt, examples.test, ranks, reading)
            title = f"testing {TITLES[name]}"
            scored = yield from _stages(steps, title, len(examples.test))
            context.test_cache[key] = scored
        scores[name] = context.test_cache[key]
        losses[name] = score(model, spec, prompt, examples.train).loss(outcome.loss)
    context.clock.add("testing", time.perf_counter() - began)
    if outcome.initial is None:
        scores["initial"], losses["initial"] = scores["zero_shot"], losses["zero_shot"]
    result = _result(context, outcome, scores, losses)
    if context.folder is not None:
        _write(context, outcome, scores, result)
    return result


def _stages(
    steps: Generator[int, None, Score], title: str, total: int
) -> Generator[Stage, None, Score]:
    while True:
        try:
            yield Stage(title, next(steps), total)
        except StopIteration as end:
            scored: Score = end.value
            return scored


def _result(
    context: RunContext,
    outcome: SearchOutcome,
    scores: dict[str, Score],
    losses: dict[str, float],
) -> Result:
    config, task = context.config, context.task
    intervals = {name: interval(scored) for name, scored in scores.items()}
    intervals["gain"] = interval(scores["test"], scores["zero_shot"])
    if outcome.initial is not None:
        intervals["added"] = interval(scores["test"], scores["initial"])
    return Result(
        method=config.method,
        model=config.model,
        task=task.name,
        seed=config.seed,
        metric=task.spec.metric,
        **{name: scored.metric for name, scored in scores.items()},
        **outcome.fields,
        intervals=intervals,
        train_loss=losses["test"],
        initial_train_loss=losses["initial"],
        auc=scores["test"].auc,
        reading=scores["test"].reading.summary(context.model.tokenizer, task.spec.labels),
        probability=scores["test"].probability,
        rank=scores["test"].rank,
        test_examples=len(task.test),
        config=config.model_dump(),
        environment=environment(),
        profile=context.clock.seconds,
        nearest=nearest_tokens(context.model, outcome.prompt),
        prompt=outcome.prompt,
    )


def _write(
    context: RunContext, outcome: SearchOutcome, scores: dict[str, Score], result: Result
) -> None:
    folder, config = context.folder, context.config
    assert folder is not None
    folder.write_answers(_answers(context.task, scores["zero_shot"], scores["test"]))
    about: dict[str, Any] = {"model": config.model, "placement": config.placement}
    about["task"] = outcome.spec.model_dump()
    folder.write_prompt(outcome.prompt, about, scores["test"].reading, outcome.examples.train.words)
    history = steps_with_beta(SavedRun(folder.path).history, result.beta)
    if history:
        draw_convergence(history, folder.files.figure)
    folder.write_result(result)


def _answers(task: Task, before: Score, after: Score) -> Iterator[dict[str, Any]]:
    """Yield each test example with the probabilities of its labels' words, before and after."""
    labels = [str(label) for label in task.spec.labels]
    kinds = [_shares(scored) for scored in (before, after)]
    for example, *shares in zip(task.test, *kinds, strict=True):
        versions = [dict(zip(labels, row.tolist(), strict=True)) for row in shares]
        yield {
            "fields": example.fields,
            "label": labels[example.label],
            "zero_shot": versions[0],
            "found": versions[1],
        }


def _shares(scored: Score) -> NDArray[np.floating[Any]]:
    """Return the words' probabilities, or those of the labels where a reading was fitted."""
    return np.exp(scored.logprobs) if scored.reading is PLAIN else scored.probabilities


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
