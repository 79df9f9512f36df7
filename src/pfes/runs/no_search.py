"""Methods that search nothing: the template alone, or behind examples or the best start."""

from collections.abc import Generator
from typing import Any

import numpy as np

from pfes.runs.context import RunContext, SearchOutcome, write_prompt
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.read_answers import Reader, search_reader
from pfes.searches.scoring import score
from pfes.searches.starts import Judge, StartRecord, choose_start, possible_starts
from pfes.system.stages import Stage
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.task import Task

WITHOUT_BUDGET = 10**9  # evaluations: as many starts are judged as there are


def without_search(context: RunContext) -> Generator[Stage, None, SearchOutcome]:
    """Return what a method without a search uses: of several draws or starts, the best."""
    config, model, task = context.config, context.model, context.task
    model.set_batch_tokens(config.batch_tokens)  # an earlier run may have set its own
    reader = search_reader(config)
    tasks = [task]
    if context.method.shows_examples:
        assert config.demonstrations is not None  # both are resolved
        assert config.draws is not None
        shown = (config.seed, config.demonstrations)
        tasks = [with_demonstrations(task, model.family, *shown, i) for i in range(config.draws)]
    if context.folder is not None:
        context.folder.begin(config, task)
    record = None
    if context.method.chooses_start:
        task, record = yield from _best_start(context, reader)
        tasks = [task]
    drawn = [EncodedTask(model, own, 0, config.placement) for own in tasks]
    losses: list[float] = []
    if len(drawn) > 1:
        for number, examples in enumerate(drawn):
            yield Stage("judging draws of examples", number, len(drawn))
            losses.append(_judged(context, examples, reader))
    examples = drawn[int(np.argmin(losses))] if losses else drawn[0]
    spec, prompt = examples.task.spec, context.no_prompt
    reading = reader.fit(model, prompt, examples.train)
    write_prompt(context, examples, prompt, reading)  # the best so far, if the test is cut off
    scored = score(model, spec, prompt, examples.validation, reading=reading)
    fields: dict[str, Any] = {
        "validation": scored.metric,
        "evaluations": 0,
        "sentence_evaluations": 0,
        "start": record,
        "stopped": None,
        "selected_at": 0,
        "seconds_per_evaluation": None,
        "beta": None,
        "beta_trials": [],
        "text": "".join(spec.demonstrations) or None,
        "draw_losses": losses,
    }
    return SearchOutcome(prompt, None, Loss(after=reader.judged_after), examples, fields)


def _best_start(
    context: RunContext, reader: Reader
) -> Generator[Stage, None, tuple[Task, StartRecord]]:
    """Return the task with what is best in front of it, and what was tried."""
    config, model, task = context.config, context.model, context.task
    assert config.draws is not None  # it is resolved
    shown = (config.demonstrations, config.draws)
    starts = possible_starts(task, model.family, config.seed, *shown)
    judge = Judge(model, reader)
    start, trials, _ = yield from choose_start(judge, starts, len(task.train), WITHOUT_BUDGET)
    return start.task, StartRecord(start.name, None, 0, trials)


def _judged(context: RunContext, examples: EncodedTask, reader: Reader) -> float:
    """Return the cross-validated loss of a draw on labelled examples that it does not show."""
    model, prompt = context.model, context.no_prompt
    reading = reader.fit(model, prompt, examples.labelled)
    if reading.loss is not None:
        return reading.loss
    return score(model, examples.task.spec, prompt, examples.labelled).loss(Loss())
