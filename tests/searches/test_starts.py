"""What may stand in front of the texts, and how it is judged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfes.errors import SettingError
from pfes.searches.starts import (
    FIRST_LOOK,
    SECOND_LOOK,
    Judge,
    Start,
    choose_start,
    evenly,
    possible_starts,
)
from pfes.system.stages import result_of
from pfes.tasks import Task, load_task


@pytest.fixture
def task(task_file: Path) -> Task:
    return load_task(task_file, shots=8)


class Fixed(Judge):
    """Knows the loss of each start, on few and on many examples."""

    def __init__(self, losses: Sequence[tuple[float, float]], starts: Sequence[Start]) -> None:
        by_task = {id(start.task): pair for start, pair in zip(starts, losses, strict=True)}
        object.__setattr__(self, "by_task", by_task)
        object.__setattr__(self, "asked", [])

    def loss(self, task: Task, examples: int) -> float:
        self.asked.append(examples)  # type: ignore[attr-defined]
        return self.by_task[id(task)][examples > FIRST_LOOK]  # type: ignore[attr-defined]


def many(task: Task) -> Task:
    """Return the task with so many examples that a second look sees more than the first."""
    return replace(task, train=task.train * 10, validation=task.validation * 10)


def starts_of(task: Task, count: int) -> list[Start]:
    return [Start(f"start {i}", replace(task)) for i in range(count)]


def test_all_starts_of_a_task(task: Task) -> None:
    names = [start.name for start in possible_starts(task, "causal", 0, None, 2)]
    assert names == [
        "nothing", "an instruction", "1 example per label, draw 1", "2 examples per label, draw 1",
        "1 example per label, draw 2", "2 examples per label, draw 2",
    ]  # fmt: skip


def test_the_number_of_examples_may_be_fixed(task: Task) -> None:
    nothing = possible_starts(task, "causal", 0, 0, 6)
    assert [start.name for start in nothing] == ["nothing", "an instruction"]
    three = possible_starts(task, "causal", 0, 3, 2)
    assert [len(start.task.spec.demonstrations) for start in three] == [6, 6]
    with pytest.raises(SettingError, match="has 8 training examples: at most 7 can be shown"):
        possible_starts(task, "causal", 0, 8, 1)


def test_a_scarce_label_keeps_an_example_to_learn_from(task: Task) -> None:
    first = next(example for example in task.train if example.label == 0)
    rest = tuple(example for example in task.train if example.label == 1)
    scarce = replace(task, train=(first, *rest))
    names = [start.name for start in possible_starts(scarce, "causal", 0, None, 6)]
    assert names == ["nothing", "an instruction"]


def test_a_start_names_the_labels_and_shows_examples_that_are_not_trained_on(task: Task) -> None:
    _, told, shown, *_ = possible_starts(task, "causal", 0, None, 1)
    assert told.task.spec.demonstrations == ("Choose one: bad or good.\n\n",)
    assert told.task.train == task.train
    text = "".join(shown.task.spec.demonstrations)
    assert len(shown.task.train) == len(task.train) - 2
    assert not any(example.fields["text"] in text for example in shown.task.train)


def test_a_task_with_something_in_front_stays_as_it_is(task: Task) -> None:
    spec = task.spec.model_copy(update={"demonstrations": ("Review: fun\nSentiment: great\n\n",)})
    (only,) = possible_starts(replace(task, spec=spec), "causal", 0, None, 6)
    assert only.name == "nothing"


@pytest.mark.parametrize("count", [1, 2, 5, 16, 31, 100])
def test_labels_take_turns(task: Task, count: int) -> None:
    chosen = evenly(task, count)
    assert len(chosen) == min(count, 32)
    counts = np.bincount([example.label for example in chosen], minlength=2)
    assert abs(int(counts[0]) - int(counts[1])) <= 1
    if count <= len(task.validation):
        assert all(example in task.validation for example in chosen)


def test_the_start_with_the_lowest_loss_is_chosen(task: Task) -> None:
    starts = starts_of(task, 4)
    judge = Fixed([(0.5, 0), (0.3, 0), (0.4, 0), (0.3, 0)], starts)
    chosen, trials, spent = result_of(choose_start(judge, starts, 16, 100))
    assert chosen.name == "start 1"  # the earlier of two that are equal
    assert [trial.loss for trial in trials] == [0.5, 0.3, 0.4, 0.3]
    assert spent == 4 * 2  # 32 examples in all, 16 in an evaluation


def test_the_best_third_is_looked_at_again(task: Task) -> None:
    starts = starts_of(many(task), 6)
    first = [0.6, 0.1, 0.5, 0.2, 0.4, 0.3]
    judge = Fixed([(loss, 1 - loss) for loss in first], starts)
    chosen, trials, spent = result_of(choose_start(judge, starts, 64, 100))
    assert chosen.name == "start 3"  # better than start 1 on more examples
    assert [trial.examples for trial in trials] == [FIRST_LOOK] * 6 + [SECOND_LOOK] * 2
    assert spent == 6 * 1 + 2 * 2


def test_one_start_is_not_looked_at_again(task: Task) -> None:
    starts = starts_of(many(task), 3)
    judge = Fixed([(0.3, 9), (0.2, 9), (0.1, 9)], starts)
    chosen, trials, spent = result_of(choose_start(judge, starts, 64, 100))
    assert (chosen.name, len(trials), spent) == ("start 2", 3, 3)


@pytest.mark.parametrize("allowance", range(12))
def test_no_more_is_spent_than_allowed(task: Task, allowance: int) -> None:
    starts = starts_of(many(task), 8)
    judge = Fixed([(0.5, 0.5)] * 8, starts)
    chosen, trials, spent = result_of(choose_start(judge, starts, 64, allowance))
    assert spent <= allowance
    if allowance < 2:
        assert (chosen, trials, spent) == (starts[0], [], 0)
    else:
        assert len(trials) >= 2


@pytest.mark.parametrize(
    ("seconds", "first", "again"),
    [(0, 2, 0), (30, 2, 0), (60, 3, 0), (70, 4, 2), (1000, 8, 3)],
)
def test_no_start_is_begun_when_the_time_is_over(
    task: Task, seconds: float, first: int, again: int
) -> None:
    """Each start takes ten seconds."""
    starts = starts_of(many(task), 8)
    judge = Fixed([(0.1 * (8 - number), 0.5) for number in range(8)], starts)

    def now() -> float:
        return 10.0 * len(judge.asked)  # type: ignore[attr-defined]

    chosen, trials, spent = result_of(choose_start(judge, starts, 64, 100, seconds, now))
    assert [trial.examples for trial in trials] == [FIRST_LOOK] * first + [SECOND_LOOK] * again
    assert chosen.name == f"start {first - 1}"
    assert spent == first + 2 * again


def test_a_loss_that_is_no_number_is_never_chosen(task: Task) -> None:
    starts = starts_of(task, 3)
    judge = Fixed([(np.nan, 0), (np.inf, 0), (5.0, 0)], starts)
    chosen, trials, _ = result_of(choose_start(judge, starts, 16, 100))
    assert chosen.name == "start 2"
    assert [trial.loss for trial in trials] == [None, None, 5.0]
