"""A prompt read and tested once: runs of one model share what they have in common."""

from collections.abc import Generator
from typing import Any

from pfes.contract import Floats
from pfes.runs.context import RunContext
from pfes.searches.encoded import EncodedTask
from pfes.searches.read_answers import Reader
from pfes.searches.reading import PLAIN, Reading
from pfes.searches.scoring import Score, score_steps
from pfes.system.stages import Stage


def score_on_test(
    context: RunContext, examples: EncodedTask, prompt: Floats, reader: Reader, title: str
) -> Generator[Stage, None, Score]:
    """Fit a reading to the labelled examples, then score the prompt on the test examples."""
    task, cache = examples.task, context.test_cache
    sizes = (examples.prompt_length, examples.placement, context.config.batch_tokens)
    asked: tuple[Any, ...] = (repr(task.spec), prompt.tobytes(), *sizes)
    reading: Reading = PLAIN
    if not reader.is_plain:
        learnt = (*asked, repr((task.train, task.validation, task.unlabelled)), reader)
        if learnt not in cache:
            yield Stage(f"fitting the reading of {title}")
            unlabelled = examples.unlabelled if task.unlabelled else None
            cache[learnt] = reader.fit(context.model, prompt, examples.labelled, unlabelled)
        reading = cache[learnt]
    answered = (*asked, repr(task.test), reading.words)
    if answered not in cache:
        steps = score_steps(context.model, task.spec, prompt, examples.test, True, reading)
        cache[answered] = yield from _stages(steps, f"testing {title}", len(examples.test))
    scored: Score = cache[answered]
    return Score(task.spec, scored.labels, scored.logprobs, scored.word_ranks, reading)


def _stages(
    steps: Generator[int, None, Score], title: str, total: int
) -> Generator[Stage, None, Score]:
    while True:
        try:
            yield Stage(title, next(steps), total)
        except StopIteration as end:
            scored: Score = end.value
            return scored
