"""What a run settled before its search: what stands in front of the texts, and the step size."""

from collections.abc import Generator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pfes.config import RunConfig
from pfes.contract import Floats
from pfes.errors import PfesError
from pfes.methods import generation_size
from pfes.runs.context import RunContext
from pfes.runs.saved import SavedRun
from pfes.searches.beta_halving import least_budget
from pfes.searches.build import SearchParts, build_search
from pfes.searches.log_space import Doubles
from pfes.searches.starts import (
    SHARE,
    Judge,
    Start,
    StartRecord,
    StartTrial,
    choose_start,
    possible_starts,
)
from pfes.searches.step_size import EVALUATIONS, choose_sigma0
from pfes.system.stages import Stage


def settle_start(
    context: RunContext, resume: bool
) -> Generator[Stage, None, tuple[SearchParts, StartRecord]]:
    """Choose where the search starts and how far it steps; a resumed run keeps its choices.

    The parts that are returned have the budget that is left.
    """
    config, method, folder = context.config, context.method, context.folder
    starts = [Start("nothing", context.task)]
    chooses = config.init == "auto" and method.space != "tokens"
    if chooses:
        starts = possible_starts(context.task, context.model.family, config.seed)
    record = None
    if folder is not None and resume:
        record = _read(SavedRun(folder.path).start)
    if record is None:
        start, spent = starts[0], 0
        trials: list[StartTrial] = []
        if chooses:
            start, trials, spent = yield from _choose(context, starts)
        with context.timed("data"):
            parts = build_search(config, method, context.model, start.task, context.clock)
        sigma0 = config.sigma0
        if sigma0 == "auto":
            yield Stage("finding the step size")
            with context.timed("model"):
                sigma0, spent = _sigma0(parts), spent + EVALUATIONS
        assert isinstance(sigma0, float)
        record = StartRecord(start.name, sigma0, spent, trials)
        if folder is not None:
            folder.write_start(asdict(record))
    else:
        start = next((s for s in starts if s.name == record.name), starts[0])
        parts = build_search(config, method, context.model, start.task, context.clock)
    left = {"sigma0": record.sigma0, "budget": config.budget - record.evaluations}
    return replace(parts, config=config.model_copy(update=left)), record


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
    context: RunContext, starts: list[Start]
) -> Generator[Stage, None, tuple[Start, list[StartTrial], int]]:
    config = context.config
    allowance = config.budget // SHARE
    if config.beta == "auto":  # which needs the rest
        together = generation_size(context.method, config.population)
        allowance = min(allowance, config.budget - least_budget(together))
    judge = Judge(context.model, context.reader)
    train = len(context.task.train)
    batch = min(config.batch_examples or train, train)
    return (yield from choose_start(judge, starts, batch, allowance))


def _sigma0(parts: SearchParts) -> float:
    space, batch = parts.space, parts.batch()
    start: Floats = space.start  # type: ignore[union-attr]

    def answers(vector: Floats) -> Doubles:
        prompts = np.asarray(space.prompts(vector[None]))
        return np.asarray(parts.model.logprobs(prompts, batch)[0], dtype=np.float64)

    guess = float(np.sqrt(np.mean(parts.model.embed(range(100)) ** 2))) / 2
    return choose_sigma0(answers, start, guess, parts.config.seed)
