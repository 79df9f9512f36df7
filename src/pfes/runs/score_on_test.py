"""Prompts read and tested, each once: runs of one model share what they have in common."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pfes.contract import Floats
from pfes.runs.context import RunContext
from pfes.searches.calibration import calibration
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import After, Loss
from pfes.searches.read_answers import Reader
from pfes.searches.reading import PLAIN, Reading
from pfes.searches.scoring import Score, interval, score, score_steps
from pfes.system.stages import Stage


@dataclass(frozen=True, eq=False)
class Asked:
    """A prompt to be tested: behind which examples, read by whom, and what it is called."""

    examples: EncodedTask
    prompt: Floats
    reader: Reader
    title: str

    def key(self, context: RunContext) -> tuple[Any, ...]:
        """Return all that its answers depend on, but for words and examples."""
        sizes = (self.examples.prompt_length, self.examples.placement, context.config.batch_tokens)
        return (repr(self.examples.task.spec), self.prompt.tobytes(), *sizes)


def score_on_test(
    context: RunContext, everything: Sequence[Asked]
) -> Generator[Stage, None, list[Score]]:
    """Fit a reading of each prompt to the labelled examples, then score it on the test examples.

    Prompts with the same examples are scored together, in one pass over them.
    """
    readings = [PLAIN] * len(everything)
    for number, asked in enumerate(everything):
        readings[number] = yield from _read(context, asked)
    cache = context.test_cache
    keys = [
        (*asked.key(context), repr(asked.examples.task.test), reading.words)
        for asked, reading in zip(everything, readings, strict=True)
    ]
    missing: dict[int, dict[tuple[Any, ...], int]] = {}  # by examples: key → index
    for number, (asked, key) in enumerate(zip(everything, keys, strict=True)):
        if key not in cache:
            missing.setdefault(id(asked.examples), {})[key] = number
    for together in missing.values():
        numbers = list(together.values())
        first = everything[numbers[0]]
        test = first.examples.test
        prompts = [(everything[i].prompt, readings[i]) for i in numbers]
        steps = score_steps(context.model, first.examples.task.spec, prompts, test, ranks=True)
        scored = yield from _stages(steps, len(test))
        cache.update(zip(together, scored, strict=True))
    return [
        replace(cache[key], spec=asked.examples.task.spec, reading=reading)
        for key, asked, reading in zip(keys, everything, readings, strict=True)
    ]


def _read(context: RunContext, asked: Asked) -> Generator[Stage, None, Reading]:
    if asked.reader.is_plain:
        return PLAIN
    examples, cache = asked.examples, context.test_cache
    task = examples.task
    about = repr((task.train, task.validation, task.unlabelled))
    key = (*asked.key(context), about, asked.reader)
    if key not in cache:
        yield Stage(f"fitting the reading of {asked.title}")
        unlabelled = examples.unlabelled if task.unlabelled else None
        cache[key] = asked.reader.fit(context.model, asked.prompt, examples.labelled, unlabelled)
    reading: Reading = cache[key]
    return reading


def train_score(context: RunContext, examples: EncodedTask, prompt: Floats) -> Score | None:
    """Return the plain answers to the training examples; None where all of them are shown."""
    if not len(examples.train):
        return None
    task, cache = examples.task, context.test_cache
    sizes = (examples.prompt_length, examples.placement, context.config.batch_tokens)
    asked = (repr(task.spec), prompt.tobytes(), *sizes, "train", repr(task.train))
    if asked not in cache:
        cache[asked] = score(context.model, task.spec, prompt, examples.train)
    scored: Score = cache[asked]
    return scored


def forget_prompts(context: RunContext, kept: Floats | None) -> None:
    """Drop what is cached for the prompts of this run alone, but not for the start it shares."""
    shared = {context.no_prompt.tobytes(), b"" if kept is None else kept.tobytes()}
    cache = context.test_cache
    for asked in [asked for asked in cache if asked[1] not in shared]:
        del cache[asked]


def tested(scored: Score, train: Score | None, after: After) -> dict[str, Any]:
    """Return the figures of a tested prompt: the fields of `Tested`.

    The cross-entropy on the training examples is judged `after` what it is in a search.
    """
    judged = calibration(scored.probabilities, scored.labels)
    right = scored.predicted == scored.labels
    return {
        "test": scored.metric,
        "interval": interval(scored),
        "auc": scored.auc,
        "ece": None if judged is None else judged.ece,
        "train_ce": None if train is None else train.loss(Loss(after=after)),
        "probability": scored.probability,
        "rank": scored.rank,
        "right": "".join("1" if one else "0" for one in right.tolist()),
    }


def _stages(
    steps: Generator[int, None, list[Score]], total: int
) -> Generator[Stage, None, list[Score]]:
    while True:
        try:
            yield Stage("testing prompts", next(steps), total)
        except StopIteration as end:
            scores: list[Score] = end.value
            return scores
