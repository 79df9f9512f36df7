"""What may stand in front of every text before a search: nothing, an instruction, examples.

`--init auto` judges such starts by the cross-validated loss of the reading, on labelled examples
alone: all of them on a few examples, then the best third on more.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from pfes.contract import Batch, Family, LanguageModel
from pfes.searches.encoded import EncodedTask
from pfes.searches.losses import Loss
from pfes.searches.read_answers import Reader
from pfes.searches.scoring import score
from pfes.system.stages import Stage
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.instruction import instruction
from pfes.tasks.task import Task

SHARE = 10  # starts may cost one part in so many of a budget
DRAWS = 6  # of examples, with one and with two of each label
SHOWN_CHARACTERS = 1600  # of all examples that are shown, about: what each evaluation looks back at
FIRST_LOOK, SECOND_LOOK = 64, 128  # labelled examples that a start is judged on
KEPT_PART = 3  # one in so many starts is looked at again


@dataclass(frozen=True)
class Start:
    """Something in front of every text, as part of a task."""

    name: str
    task: Task


@dataclass(frozen=True)
class StartTrial:
    """How a start was judged; `loss` is cross-validated on so many labelled examples."""

    name: str
    loss: float
    examples: int


@dataclass(frozen=True)
class StartRecord:
    """What a run settled before its search, and what that cost."""

    name: str  # of what stands in front of the texts
    sigma0: float
    evaluations: int
    trials: list[StartTrial] = field(default_factory=list)


def possible_starts(task: Task, family: Family, seed: int) -> list[Start]:
    """Return all starts, the simplest first; each draw of examples with one and two per label."""
    spec = task.spec
    starts = [Start("nothing", task)]
    if spec.demonstrations:
        return starts  # the task has something in front already
    told = spec.model_copy(update={"demonstrations": (instruction(spec, family),)})
    starts.append(Start("an instruction", replace(task, spec=told)))
    counts = np.bincount([example.label for example in task.train], minlength=len(spec.labels))
    for draw in range(DRAWS):
        for per_label in (1, 2):
            if counts.min() <= per_label:  # a label must keep examples to learn from
                continue
            longest = SHOWN_CHARACTERS // (per_label * len(spec.labels))
            shown = with_demonstrations(task, family, seed, per_label, draw, longest)
            many = "1 example" if per_label == 1 else f"{per_label} examples"
            starts.append(Start(f"{many} per label, draw {draw + 1}", shown))
    return starts


@dataclass(frozen=True)
class Judge:
    """Judges what stands in front of the texts, by the cross-validated loss of a reading."""

    model: LanguageModel
    reader: Reader

    def loss(self, task: Task, examples: int) -> float:
        """Return the loss on so many labelled examples, as many of each label."""
        encoded = EncodedTask(self.model, task, 0)
        prompt = np.empty((0, self.model.width), dtype=np.float32)
        batch = evenly(encoded, examples)
        reading = self.reader.fit(self.model, prompt, batch)
        if reading.loss is not None:
            return reading.loss
        return score(self.model, task.spec, prompt, batch).loss(Loss())


def evenly(encoded: EncodedTask, count: int) -> Batch:
    """Return `count` labelled examples, the labels in turn.

    Validation examples come first: no start shows them, so they are the same for all starts.
    """
    task = encoded.task
    whole = encoded.labelled
    order = [*range(len(task.train), len(whole)), *range(len(task.train))]
    seen: dict[int, int] = {}
    turns = []
    for place, index in enumerate(order):
        label = int(whole.labels[index])
        seen[label] = seen.get(label, -1) + 1
        turns.append((seen[label], place, index))
    return whole.take(sorted(index for _, _, index in sorted(turns)[:count]))


def choose_start(
    judge: Judge, starts: Sequence[Start], batch: int, allowance: int
) -> Generator[Stage, None, tuple[Start, list[StartTrial], int]]:
    """Choose the start with the lowest loss; return it, what was tried, and evaluations spent.

    `batch` is how many examples an evaluation has, `allowance` how many evaluations may be spent.
    With too small an allowance to compare two starts, nothing stands in front.
    """
    task = starts[0].task
    first, second = (_cost(look, task, batch) for look in (FIRST_LOOK, SECOND_LOOK))
    if len(task.train) + len(task.validation) <= FIRST_LOOK:
        second = 0  # the first look has seen all there is
    count = len(starts)
    while count > 1 and count * first + ceil(count / KEPT_PART) * second > allowance:
        count -= 1
    if count < 2:
        return starts[0], [], 0
    trials: list[StartTrial] = []

    def look(
        some: Sequence[Start], examples: int, title: str
    ) -> Generator[Stage, None, list[Start]]:
        losses = []
        for number, start in enumerate(some):
            yield Stage(title, number, len(some), "starts")
            losses.append(judge.loss(start.task, examples))
            there = len(start.task.train) + len(start.task.validation)
            trials.append(StartTrial(start.name, losses[-1], min(examples, there)))
        yield Stage(title, len(some), len(some), "starts")
        finite = [loss if np.isfinite(loss) else np.inf for loss in losses]
        return [some[int(i)] for i in np.argsort(finite, kind="stable")]

    ranked = yield from look(starts[:count], FIRST_LOOK, "judging starts")
    if not second:
        return ranked[0], trials, count * first
    kept = ranked[: ceil(count / KEPT_PART)]
    best = yield from look(kept, SECOND_LOOK, "judging the best starts")
    return best[0], trials, count * first + len(kept) * second


def _cost(look: int, task: Task, batch: int) -> int:
    """Return the evaluations that a look at so many examples counts as."""
    return ceil(min(look, len(task.train) + len(task.validation)) / max(1, batch))
