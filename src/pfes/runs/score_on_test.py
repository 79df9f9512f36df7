"""A prompt read and tested once: runs of one model share what they have in common."""

from collections.abc import Generator
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
    steps: Generator[int, None, Score], title: str, total: int
) -> Generator[Stage, None, Score]:
    while True:
        try:
            yield Stage(title, next(steps), total)
        except StopIteration as end:
            scored: Score = end.value
            return scored
