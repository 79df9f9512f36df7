"""What a run settled before its search: what stands in front of the texts, and the step size."""

import math
import time
from collections.abc import Generator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pfes.config import RunConfig
from pfes.contract import Floats, LanguageModel
from pfes.errors import PfesError
from pfes.methods import generation_size
from pfes.runs.context import RunContext, write_prompt
from pfes.runs.saved import SavedRun
from pfes.searches.beta_halving import BETAS, least_budget
from pfes.searches.build import SearchParts, build_search
from pfes.searches.encoded import EncodedTask
from pfes.searches.log_space import Doubles
from pfes.searches.starts import (
    SHARE,
    TIME_SHARE,
    Judge,
    Start,
    StartRecord,
    StartTrial,
    choose_start,
    possible_starts,
)
from pfes.searches.step_size import EVALUATIONS, StepSize, choose_step_size
from pfes.system.stages import Stage


def settle_start(
    context: RunContext, searching: LanguageModel, resume: bool
) -> Generator[Stage, None, tuple[SearchParts, StartRecord]]:
    """Choose where the search starts and how far it steps; a resumed run keeps its choices.

    The starts are compared by the model that answers for candidates, too. The parts that are
    returned have the budget that is left.
    """
    config, method, folder = context.config, context.method, context.folder
    starts = _starts(context)
    record = None
    if folder is not None and resume:
        record = _read(SavedRun(folder.path).start)
    if record is None:
        start, spent, began = starts[0], 0, time.perf_counter()
        trials: list[StartTrial] = []
        if len(starts) > 1:
            yield from _begin(context)
            start, trials, spent = yield from _choose(context, searching, starts)
        # some part of the minutes is left for the search, however long a single start took
        seconds = min(time.perf_counter() - began, _most_seconds(config))
        with context.timed("data"):
            parts = build_search(config, method, context.model, start.task, context.clock)
        sigma0, radius = config.sigma0, config.radius
        if sigma0 == "auto":
            yield Stage("finding the step size")
            with context.timed("model"):
                step, spent = _step_size(parts), spent + EVALUATIONS
            sigma0 = step.sigma0
            if method.optimizer == "zosgd":
                sigma0, radius = step.learning_rate, radius or step.sigma0
        assert isinstance(sigma0, float)
        limited = seconds if config.minutes is not None else 0.0
        record = StartRecord(start.name, sigma0, spent, trials, radius, limited)
        if folder is not None:
            folder.write_start(asdict(record))
    else:
        start = next((s for s in starts if s.name == record.name), starts[0])
        parts = build_search(config, method, context.model, start.task, context.clock)
    settled = {"sigma0": record.sigma0, "budget": config.budget - record.evaluations}
    if record.radius is not None:
        settled["radius"] = record.radius
    return replace(parts, config=config.model_copy(update=settled), searching=searching), record


def _starts(context: RunContext) -> list[Start]:
    """Return all that may stand in front of the texts."""
    config, task = context.config, context.task
    if context.method.space == "tokens" or (config.init != "auto" and not config.demonstrations):
        return [Start("nothing", task)]
    assert config.draws is not None  # it is resolved
    shown = (config.demonstrations, config.draws)
    return possible_starts(task, context.model.family, config.seed, *shown)


def _begin(context: RunContext) -> Generator[Stage, None, None]:
    """Leave something to use and to go on with before the first choice: the template, read."""
    if context.folder is None:
        return
    config, method, model, task = context.config, context.method, context.model, context.task
    # what cannot be searched is refused before anything is written; any step size will do for that
    tried = config.model_copy(update={"sigma0": 1.0, "radius": 1.0})
    build_search(tried, method, model, task, context.clock).make_search()
    context.folder.begin(config, task)
    yield Stage("reading the template's answers")
    examples = EncodedTask(model, task, 0, config.placement)
    reading = context.reader.fit(model, context.no_prompt, examples.train)
    write_prompt(context, examples, context.no_prompt, reading)


def settling_sentences(config: RunConfig, record: StartRecord, batch: int) -> int:
    """Return how many examples were evaluated before the search, where an evaluation has `batch`.

    Each start that an example was evaluated with counts.
    """
    looks = EVALUATIONS if config.sigma0 == "auto" else 0
    return sum(trial.examples for trial in record.trials) + looks * batch


def _read(content: dict[str, Any] | None) -> StartRecord | None:
    if content is None:
        return None
    try:
        trials = [StartTrial(**trial) for trial in content["trials"]]
        return StartRecord(**content | {"trials": trials})
    except (KeyError, TypeError) as error:
        raise PfesError(f"start.json does not say how the run started: {error}") from None


def _choose(
    context: RunContext, searching: LanguageModel, starts: list[Start]
) -> Generator[Stage, None, tuple[Start, list[StartTrial], int]]:
    config = context.config
    allowance = config.budget // SHARE
    if config.beta == "auto":  # which needs the rest
        together = generation_size(context.method, config.population)
        allowance = min(allowance, config.budget - least_budget(together))
    judge = Judge(searching, context.reader)
    train = len(context.task.train)
    batch = min(config.batch_examples or train, train)
    seconds = _most_seconds(config)
    cache, task = context.test_cache, context.task
    about = repr(([(start.name, start.task.spec) for start in starts], task.train, task.validation))
    sizes = (batch, allowance, seconds, searching.precision, config.batch_tokens)
    key = ("start", context.no_prompt.tobytes(), about, context.reader, *sizes)
    if key not in cache:
        start, trials, spent = yield from choose_start(judge, starts, batch, allowance, seconds)
        cache[key] = (starts.index(start), trials, spent)
    number, trials, spent = cache[key]
    return starts[number], trials, spent


def _most_seconds(config: RunConfig) -> float:
    return math.inf if config.minutes is None else 60 * config.minutes / TIME_SHARE


def _step_size(parts: SearchParts) -> StepSize:
    space, batch, config = parts.space, parts.batch(), parts.config
    start: Floats = space.start  # type: ignore[union-attr]
    loss = parts.loss(BETAS[0] if config.beta == "auto" else config.beta)

    def answers(vector: Floats) -> Doubles:
        prompts = np.asarray(space.prompts(vector[None]))
        return np.asarray(parts.model.logprobs(prompts, batch)[0], dtype=np.float64)

    def value(logprobs: Doubles) -> float:
        return float(loss(logprobs[None], batch.labels)[0])

    guess = float(np.sqrt(np.mean(parts.model.embed(range(100)) ** 2))) / 2
    return choose_step_size(answers, value, start, guess, config.seed)
