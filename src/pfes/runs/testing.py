"""The end of a run: the test set is read, once, and what was found is written."""

import math
import os
import platform
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from pfes.contract import Floats
from pfes.models.nearest_tokens import nearest_tokens
from pfes.runs.context import RunContext, SearchOutcome, words_as_text, write_prompt
from pfes.runs.figure import draw_convergence
from pfes.runs.free import FreeAnswer, best_free, free_answers, free_prompts
from pfes.runs.result import EarlierResult, Result
from pfes.runs.saved import SavedRun, steps_with_beta
from pfes.runs.score_on_test import Asked, forget_prompts, score_on_test, tested, train_score
from pfes.searches.calibration import calibration
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.read_answers import Reader, make_reader
from pfes.searches.reading import PLAIN
from pfes.searches.scoring import Score, interval
from pfes.searches.starts import StartRecord
from pfes.system.stages import Stage
from pfes.tasks.task import Task

PLAIN_READER = Reader("plain", 0)


def evaluate_outcome(context: RunContext, outcome: SearchOutcome) -> Generator[Stage, None, Result]:
    """Test what was found beside what is free; write prompt, answers, figure and result."""
    began = time.perf_counter()
    config, found = context.config, outcome.examples
    own = found if found.task is context.task else replace(found, task=context.task)
    reader = make_reader(config, context.task)
    kinds: dict[str, Asked] = {}
    if config.free == "all" and context.task.test:
        record = outcome.fields.get("start")
        start = record.name if isinstance(record, StartRecord) else ""
        kinds = free_prompts(context, own, found, start)
    asked = dict(kinds)
    if not kinds:
        asked["template"] = Asked(own, context.no_prompt, PLAIN_READER, "template alone")
    asked["found"] = Asked(found, outcome.prompt, reader, "found prompt")
    for earlier in outcome.earlier:
        title = f"the prompt after {earlier.at} evaluations"
        asked[str(earlier.at)] = Asked(found, earlier.prompt, reader, title)
    if outcome.initial is not None:
        asked["initial"] = Asked(found, outcome.initial, reader, "initial prompt")
    scored = yield from score_on_test(context, list(asked.values()))
    by_name = dict(zip(asked, scored, strict=True))
    free = free_answers(context, kinds, by_name) if kinds else []
    template = by_name["template"].plainly()
    scores = {"zero_shot": template, "test": by_name["found"]}
    scores["initial"] = by_name.get("initial", template)
    unsearched = (own, context.no_prompt)
    first = unsearched if outcome.initial is None else (found, outcome.initial)
    losses = {
        "test": _train_loss(context, found, outcome.prompt, outcome.loss),
        "initial": _train_loss(context, *first, outcome.loss),
    }
    before = _earlier_results(context, outcome, reader, by_name)
    context.clock.add("testing", time.perf_counter() - began)
    result = _result(context, outcome, scores, losses, free)
    result = result.model_copy(update={"earlier": before})
    if context.folder is not None:
        _write(context, outcome, scores, result)
    forget_prompts(context, outcome.initial)
    return result


def _train_loss(context: RunContext, examples: EncodedTask, prompt: Floats, loss: Loss) -> float:
    scored = train_score(context, examples, prompt)
    return math.nan if scored is None else scored.loss(loss)


def _earlier_results(
    context: RunContext, outcome: SearchOutcome, reader: Reader, scores: dict[str, Score]
) -> list[EarlierResult]:
    results = []
    for earlier in outcome.earlier:
        train = train_score(context, outcome.examples, earlier.prompt)
        figures = tested(scores[str(earlier.at)], train, after=reader.judged_after)
        selected = earlier.selection
        results.append(
            EarlierResult(
                at=earlier.at,
                selected_at=selected.evaluations,
                validation=selected.validation.metric,
                **figures,
            )
        )
    return results


def _result(
    context: RunContext,
    outcome: SearchOutcome,
    scores: dict[str, Score],
    losses: dict[str, float],
    free: list[FreeAnswer],
) -> Result:
    config, task = context.config, context.task
    found = scores["test"]
    intervals = {name: interval(scored) for name, scored in scores.items()}
    intervals["gain"] = interval(found, scores["zero_shot"])
    if outcome.initial is not None:
        intervals["added"] = interval(found, scores["initial"])
    best = best_free(free) if free else None
    if best is not None and outcome.initial is not None:
        intervals["over_free"] = interval(found, best.score)
    trained = train_score(context, outcome.examples, outcome.prompt)
    figures = tested(found, trained, after=outcome.loss.after)
    train = outcome.examples.train
    lengths = [len(row) + len(train.ending(len(outcome.prompt))) for row in train.token_ids]
    kinds = {"plain": found.plainly(), "read": found}
    judged = {name: calibration(s.probabilities, s.labels) for name, s in kinds.items()}
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
        train_ce=figures["train_ce"],
        right=figures["right"],
        parameters=context.model.parameters,
        sentence_tokens=float(np.mean(lengths)) + len(outcome.prompt) if lengths else None,
        free=[answer.result for answer in free],
        best_free=None if best is None else best.name,
        auc=found.auc,
        initial_auc=scores["initial"].auc,
        calibration={name: c for name, c in judged.items() if c is not None},
        reading=found.reading.summary(context.model.tokenizer, task.spec.labels),
        probability=found.probability,
        rank=found.rank,
        test_examples=len(task.test),
        config=config.model_dump(),
        environment=environment(),
        profile=context.clock.seconds,
        nearest=_nearest(context, outcome.prompt),
        prompt=outcome.prompt,
        spec=outcome.examples.task.spec,
        fitted=found.reading,
        end=len(outcome.examples.train.end),
        words=words_as_text(context.model, found.reading),
    )


def _nearest(context: RunContext, prompt: Floats) -> list[list[tuple[str, float]]]:
    """Return the tokens nearest to a soft prompt, where a prompt may be one."""
    return nearest_tokens(context.model, prompt) if context.model.takes_embeddings else []


def _write(
    context: RunContext, outcome: SearchOutcome, scores: dict[str, Score], result: Result
) -> None:
    folder = context.folder
    assert folder is not None
    folder.write_answers(_answers(context.task, scores["zero_shot"], scores["test"]))
    write_prompt(context, outcome.examples, outcome.prompt, scores["test"].reading)
    history = steps_with_beta(SavedRun(folder.path).history, result.beta)
    if history:
        selected = result.selected_at, result.validation
        draw_convergence(history, selected, folder.files.figure)
    folder.write_result(result)


def _answers(task: Task, before: Score, after: Score) -> Iterator[dict[str, Any]]:
    """Yield each test example with the probabilities before and after.

    Those of the labels' words over the whole vocabulary; where a reading was fitted, `found` are
    those of the labels, and `words` are those of their words.
    """
    kinds = {"zero_shot": np.exp(before.logprobs), "found": np.exp(after.own_logprobs)}
    if after.reading is not PLAIN:
        kinds = {
            "zero_shot": kinds["zero_shot"],
            "found": after.probabilities,
            "words": kinds["found"],
        }
    labels = task.spec.labels
    for i, example in enumerate(task.test):
        shares = {
            name: dict(zip(labels, rows[i].tolist(), strict=True)) for name, rows in kinds.items()
        }
        yield {"fields": example.fields, "label": labels[example.label], **shares}


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
