"""What costs no search: a constant answer, the template, examples in front, each of them read."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pfes.contract import Ints
from pfes.runs.context import RunContext
from pfes.runs.result import FreeResult
from pfes.runs.score_on_test import Asked, tested, train_score
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import After
from pfes.searches.read_answers import make_reader
from pfes.searches.scoring import Score, metric_of_counts
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.task import Task

CONSTANT = "constant"
COUNTED = 10**6  # of a million examples, how many have each label


@dataclass(frozen=True)
class FreeAnswer:
    """Something that costs no search, tested."""

    name: str
    title: str
    score: Score
    loss: float  # cross-validated on the labelled examples
    train: Score | None  # plain answers to the training examples
    after: After = "nothing"  # what these are judged after

    @property
    def result(self) -> FreeResult:
        """Its figures."""
        figures = tested(self.score, self.train, after=self.after)
        if self.name == CONSTANT:  # it says no word, and nothing of how sure it is
            figures |= dict.fromkeys(("ece", "train_ce", "probability", "rank"))
        return FreeResult(name=self.name, title=self.title, loss=self.loss, **figures)


def free_prompts(
    context: RunContext, examples: EncodedTask, found: EncodedTask, start: str
) -> dict[str, Asked]:
    """Return what is free and has to be tested, by its name.

    `examples` are the task's own, with nothing in front; `found` are those of the search, whose
    start, of this name, may have put something in front.
    """
    config, model, task = context.config, context.model, context.task
    kind = "auto" if config.reading == "plain" else config.reading
    reader = make_reader(config.model_copy(update={"reading": kind}), task)

    def asked(encoded: EncodedTask, title: str) -> Asked:
        return Asked(encoded, context.no_prompt, reader, title)

    kinds = {"template": asked(examples, "template alone")}
    searched = context.method.optimizer is not None
    if searched and found.task is not task:  # the start of the search is the best of what is free
        in_front = start.partition(",")[0]  # without the number of the draw
        kinds["start"] = asked(found, f"{in_front} in front")
    elif config.init != "auto" or context.method.space in (None, "tokens"):
        shown = with_demonstrations(task, model.family, config.seed)
        with_examples = EncodedTask(model, shown, 0, config.placement)
        kinds["examples"] = asked(with_examples, "examples in front")
    return kinds


def free_answers(
    context: RunContext, kinds: dict[str, Asked], scores: dict[str, Score]
) -> list[FreeAnswer]:
    """Return the figures of everything that is free, with the scores of what was tested."""
    template = kinds["template"].examples
    answers = [_constant(context.task, template.test.labels, template.labelled.labels)]
    for name, asked in kinds.items():
        title, scored = asked.title, scores[name]
        reading, train = scored.reading, train_score(context, asked.examples, asked.prompt)
        assert reading.loss is not None
        assert reading.plain_loss is not None
        answers.append(FreeAnswer(name, title, scored.plainly(), reading.plain_loss, train))
        title = title.removesuffix(" alone").removesuffix(" in front")
        alone = reading.offset_alone
        if alone is not None and reading.rung != "offset":
            assert alone.loss is not None
            read = (f"{name} + offset", f"{title} + offset")
            answers.append(FreeAnswer(*read, scored.plainly(alone), alone.loss, train, "offset"))
        read = (f"{name} + reading", f"{title} + reading")
        after = asked.reader.judged_after
        answers.append(FreeAnswer(*read, scored, reading.loss, train, after))
    return answers


def best_free(answers: list[FreeAnswer]) -> FreeAnswer:
    """Return the best by cross-validated loss: no test example is looked at."""
    return min(answers, key=lambda answer: answer.loss if math.isfinite(answer.loss) else math.inf)


def _constant(task: Task, test_labels: Ints, labels: Ints) -> FreeAnswer:
    """Return what the same answer to everything gives: that which is best on the training data."""
    spec = task.spec
    count = len(spec.labels)
    shares = np.array(task.shares or [1 / count] * count)
    matrices = np.zeros((count, count, count), dtype=np.int64)
    for answer in range(count):
        matrices[answer, :, answer] = (COUNTED * shares).round()
    best = int(metric_of_counts(spec, matrices).argmax())
    logprobs = np.full((len(test_labels), count), -np.inf, dtype=np.float32)
    logprobs[:, best] = 0
    examples = np.bincount(labels, minlength=count) / max(1, len(labels))
    entropy = -sum(_times_log(examples.tolist()))
    title = f"always {spec.labels[best]!r}"
    return FreeAnswer(CONSTANT, title, Score(spec, test_labels, logprobs, None), entropy, None)


def _times_log(shares: list[float]) -> Iterator[float]:
    return (share * math.log(share) for share in shares if share > 0)
