"""What may stand in front of every text before a search: nothing, an instruction, examples.

`--init auto` judges such starts by the cross-validated loss of the reading, on labelled examples
alone: all of them on a few examples, then the best third on more.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from pfes.contract import Family, LanguageModel
from pfes.errors import SettingError
from pfes.searches.encoded import encode_for
from pfes.searches.losses import Loss
from pfes.searches.read_answers import Reader
from pfes.searches.scoring import score
from pfes.system.stages import Stage
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.example import Example
from pfes.tasks.instruction import instruction
from pfes.tasks.task import Task

SHARE = 10  # starts may cost one part in so many of a budget
DRAWS = 6  # of examples, with one and with two of each label
SHOWN_CHARACTERS = 1600  # of all examples that are shown, about: what each evaluation looks back at
FIRST_LOOK, SECOND_LOOK = 64, 128  # labelled examples that a start is judged on
KEPT_PART = 3  # one in so many starts is looked at again
TIME_SHARE = 3  # starts may take one part in so many of the minutes of a search


@dataclass(frozen=True)
class Start:
    """Something in front of every text, as part of a task."""

    name: str
    task: Task


@dataclass(frozen=True)
class StartTrial:
    """How a start was judged; `loss` is cross-validated on so many labelled examples."""

    name: str
    loss: float | None  # None if it is not finite
    examples: int


@dataclass(frozen=True)
class StartRecord:
    """What a run settled before its search, and what that cost."""

    name: str  # of what stands in front of the texts
    sigma0: float | None  # None where nothing is searched
    evaluations: int
    trials: list[StartTrial] = field(default_factory=list)
    radius: float | None = None  # of ZO-SGD
    seconds: float = 0.0  # of the search's minutes, where these are limited


def possible_starts(
    task: Task, family: Family, seed: int, per_label: int | None, draws: int
) -> list[Start]:
    """Return all starts, the simplest first.

    `per_label` examples of each label stand in front; if that is open, none, one and two are tried.
    """
    spec = task.spec
    nothing = Start("nothing", task)
    if spec.demonstrations:
        return [nothing]  # the task has something in front already
    told = spec.model_copy(update={"demonstrations": (instruction(spec, family),)})
    told_start = Start("an instruction", replace(task, spec=told))
    counts = np.bincount([example.label for example in task.train], minlength=len(spec.labels))
    most = int(counts.min()) - 1  # a label must keep an example to learn from
    if per_label is None:
        examples = [
            _with_examples(task, family, seed, number, draw)
            for draw in range(draws)
            for number in (1, 2)
            if number <= most
        ]
        return [nothing, told_start, *examples]
    if per_label == 0:
        return [nothing, told_start]
    if per_label > most:
        scarce = spec.labels[int(counts.argmin())]
        raise SettingError(
            "demonstrations",
            f"label {scarce!r} has {most + 1} training examples: at most {most} can be shown, so "
            "that one is left to learn from",
        )
    return [_with_examples(task, family, seed, per_label, draw) for draw in range(draws)]


def _with_examples(task: Task, family: Family, seed: int, per_label: int, draw: int) -> Start:
    longest = SHOWN_CHARACTERS // (per_label * len(task.spec.labels))
    shown = with_demonstrations(task, family, seed, per_label, draw, longest)
    many = "1 example" if per_label == 1 else f"{per_label} examples"
    return Start(f"{many} per label, draw {draw + 1}", shown)


@dataclass(frozen=True)
class Judge:
    """Judges what stands in front of the texts, by the cross-validated loss of a reading."""

    model: LanguageModel
    reader: Reader

    def loss(self, task: Task, examples: int) -> float:
        """Return the loss on so many labelled examples, as many of each label."""
        prompt = np.empty((0, self.model.width), dtype=np.float32)
        batch = encode_for(self.model, task.spec, evenly(task, examples), 0)
        reading = self.reader.fit(self.model, prompt, batch)
        if reading.loss is not None:
            return reading.loss
        return score(self.model, task.spec, prompt, batch).loss(Loss())


def evenly(task: Task, count: int) -> list[Example]:
    """Return `count` labelled examples, the labels in turn.

    Validation examples come first: no start shows them, so they are the same for all starts.
    """
    seen: dict[int, int] = {}
    turns = []
    for place, example in enumerate((*task.validation, *task.train)):
        seen[example.label] = turn = seen.get(example.label, -1) + 1
        turns.append((turn, place, example))
    chosen = sorted(turns, key=lambda item: item[:2])[:count]
    return [example for _, _, example in sorted(chosen, key=lambda item: item[1])]


def choose_start(
    judge: Judge,
    starts: Sequence[Start],
    batch: int,
    allowance: int,
    seconds: float = math.inf,
    now: Callable[[], float] = time.perf_counter,
) -> Generator[Stage, None, tuple[Start, list[StartTrial], int]]:
    """Choose the start with the lowest loss; return it, what was tried, and evaluations spent.

    `batch` is how many examples an evaluation has, `allowance` how many evaluations may be spent.
    With too small an allowance to compare two starts, it is the first. No start is begun after so
    many `seconds`, half of them for the first look, but the first two are always compared.
    """
    task = starts[0].task
    first, second = (_cost(look, task, batch) for look in (FIRST_LOOK, SECOND_LOOK))
    all_seen = len(task.train) + len(task.validation) <= FIRST_LOOK

    def looked_at_again(count: int) -> int:
        again = ceil(count / KEPT_PART)
        return 0 if all_seen or again == 1 else again

    count = len(starts)
    while count > 1 and count * first + looked_at_again(count) * second > allowance:
        count -= 1
    if count < 2:
        return starts[0], [], 0
    trials: list[StartTrial] = []

    began = now()

    def look(
        some: Sequence[Start], examples: int, title: str, least: int, until: float
    ) -> Generator[Stage, None, list[Start]]:
        losses: list[float] = []
        for number, start in enumerate(some):
            if number >= least and now() - began >= until:
                break
            yield Stage(title, number, len(some), "starts")
            loss = judge.loss(start.task, examples)
            finite = np.isfinite(loss)
            losses.append(loss if finite else np.inf)
            there = len(start.task.train) + len(start.task.validation)
            judged = StartTrial(start.name, loss if finite else None, min(examples, there))
            trials.append(judged)
        yield Stage(title, len(some), len(some), "starts")
        return [some[int(i)] for i in np.argsort(losses, kind="stable")]

    ranked = yield from look(starts[:count], FIRST_LOOK, "judging starts", 2, seconds / 2)
    kept = ranked[: looked_at_again(len(ranked))]
    again = yield from look(kept, SECOND_LOOK, "judging the best starts", 0, seconds)
    spent = len(ranked) * first + len(again) * second
    # with time for one of them only, it is the one that was the best before
    return (again or ranked)[0], trials, spent


def _cost(look: int, task: Task, batch: int) -> int:
    """Return the evaluations that a look at so many examples counts as."""
    return ceil(min(look, len(task.train) + len(task.validation)) / max(1, batch))
