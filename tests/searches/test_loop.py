"""The loop spends its budget exactly, selects as stated, and continues bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfes.optimizers import SAES, OnePlusOneES, Optimizer
from pfes.searches.log_space import Doubles
from pfes.searches.loop import Search
from pfes.searches.validation import Validation


def optimizer(kind: str, seed: int = 0) -> Optimizer:
    x0 = np.ones(8, dtype=np.float32)
    return OnePlusOneES(x0, 0.3, seed=seed) if kind == "one" else SAES(x0, 0.3, 6, 2, seed=seed)


class Counted:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, candidates: np.ndarray) -> tuple[Doubles, Doubles]:
        self.count += len(candidates)
        values = (candidates.astype(np.float64) ** 2).sum(axis=1)
        return values, 2 * values


def validate(solution: np.ndarray) -> Validation:
    return Validation(float(np.round(solution[0], 1)), float((solution**2).sum()), 0.0)


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(["one", "saes"]),
    budget=st.integers(1, 50),
    eval_every=st.integers(1, 60),
)
def test_budget_is_spent_exactly(kind: str, budget: int, eval_every: int) -> None:
    evaluate = Counted()
    search = Search(optimizer(kind), evaluate, validate, budget, eval_every)
    steps = list(search.steps())
    assert evaluate.count == budget == steps[-1].evaluations == search.evaluations
    assert sum(len(step.losses) for step in steps) == budget
    assert all(step.best_cross_entropy == 2 * step.best_loss for step in steps)
    assert steps[-1].validation is not None
    assert search.selection is not None


@pytest.mark.parametrize("kind", ["one", "saes"])
@pytest.mark.parametrize("stop", range(1, 9))
def test_continuing_equals_never_stopping(kind: str, stop: int) -> None:
    def make() -> Search:
        return Search(optimizer(kind), Counted(), validate, 47, 10)

    whole = make()
    expected = list(whole.steps())
    first = make()
    for _, _step in zip(range(stop), first.steps(), strict=False):
        pass
    second = make()
    second.load_state(first.state())
    rest = list(second.steps())
    assert whole.selection is not None
    assert second.selection is not None
    np.testing.assert_array_equal(whole.selection.solution, second.selection.solution)
    assert [s.losses for s in expected[len(expected) - len(rest) :]] == [s.losses for s in rest]
    assert [s.selected for s in expected[len(expected) - len(rest) :]] == [s.selected for s in rest]


@pytest.mark.parametrize(
    ("ours", "theirs", "wins"),
    [
        ((0.8, 1.0), (0.7, 0.1), True),
        ((0.7, 0.1), (0.8, 1.0), False),
        ((0.8, 0.5), (0.8, 0.6), True),
        ((0.8, 0.6), (0.8, 0.5), False),
        ((0.8, 0.5), (0.8, 0.5), False),
    ],
)
def test_selection_by_metric_then_loss_then_age(ours: tuple, theirs: tuple, wins: bool) -> None:
    assert Validation(*ours, 0.0).beats(Validation(*theirs, 0.0)) is wins


def test_the_selected_solution_is_the_one_that_validated_best() -> None:
    search = Search(optimizer("saes"), Counted(), validate, 120, 6)
    seen = [(validate(search.start), search.start, 0)]
    for step in search.steps():
        assert step.validation is not None
        seen.append((step.validation, search.optimizer.solution.copy(), step.evaluations))
    best = max(seen, key=lambda entry: (entry[0].metric, -entry[0].loss, -entry[2]))
    assert search.selection is not None
    assert search.selection.evaluations == best[2]
    np.testing.assert_array_equal(search.selection.solution, best[1])


def test_validation_happens_when_due() -> None:
    search = Search(optimizer("saes"), Counted(), validate, 50, 20)
    due = [step.evaluations for step in search.steps() if step.validation is not None]
    assert due == [24, 42, 50]


def test_a_failing_model_counts_as_worst_and_goes_on() -> None:
    def sometimes(candidates: np.ndarray) -> tuple[Doubles, Doubles]:
        values = (candidates.astype(np.float64) ** 2).sum(axis=1)
        values[::2] = np.nan
        return values, values

    search = Search(optimizer("saes"), sometimes, validate, 60, 10)
    list(search.steps())
    assert np.isfinite(search.optimizer.solution).all()
    assert search.optimizer.best_value < 8


@pytest.mark.parametrize("kind", ["one", "saes"])
def test_a_start_is_validated_once_and_kept_if_nothing_is_better(kind: str) -> None:
    seen = []

    def worse_or_equal(solution: np.ndarray) -> Validation:
        seen.append(solution.copy())
        return Validation(0.5, 1.0, 1.0)

    search = Search(optimizer(kind), Counted(), worse_or_equal, 30, 10)
    assert not any(step.selected for step in search.steps())
    assert search.selection is not None
    assert search.selection.evaluations == 0
    np.testing.assert_array_equal(search.selection.solution, np.ones(8))
    np.testing.assert_array_equal(seen[0], np.ones(8))
    before = len(seen)
    again = Search(optimizer(kind), Counted(), worse_or_equal, 30, 10)
    again.load_state(search.state())
    list(again.steps())
    assert len(seen) == before


def never_better(_: np.ndarray) -> Validation:
    return Validation(0.5, 1.0, 1.0)


def test_minutes_end_a_search_after_the_step_in_which_they_are_over() -> None:
    search = Search(optimizer("saes"), Counted(), validate, 60, 50, minutes=1e-9)
    (only,) = search.steps()
    assert only.validation is not None
    assert search.stopped == "1e-09 minutes were over"


def test_minutes_may_be_over_within_a_generation() -> None:
    evaluate = Counted()
    search = Search(optimizer("saes"), evaluate, validate, 60, 50, minutes=1e-9, block=2)
    (only,) = search.steps()
    assert evaluate.count == only.evaluations == len(only.losses) == 2
    assert search.optimizer.best_value == min(only.losses)


def test_blocks_change_nothing_while_there_is_time() -> None:
    def steps(block: int | None) -> list[list[float]]:
        search = Search(optimizer("saes"), Counted(), validate, 45, 10, minutes=60, block=block)
        return [step.losses for step in search.steps()]

    assert steps(1) == steps(4) == steps(None)


def test_minutes_of_earlier_sessions_count() -> None:
    first = Search(optimizer("saes"), Counted(), validate, 60, 50, minutes=5)
    next(iter(first.steps()))
    again = Search(optimizer("saes"), Counted(), validate, 60, 50, minutes=5)
    again.load_state(first.state() | {"seconds": 299.9999999})
    (last,) = again.steps()
    assert last.validation is not None
    assert again.stopped == "5 minutes were over"


@pytest.mark.parametrize("eval_every", [6, 18, 1000])
def test_a_search_ends_when_nothing_better_is_found(eval_every: int) -> None:
    def make() -> Search:
        return Search(optimizer("saes"), Counted(), never_better, 600, eval_every, stop_after=30)

    search = make()
    steps = list(search.steps())
    assert search.evaluations == 30
    assert steps[-1].validation is not None
    assert search.stopped == "nothing better in the last 30 evaluations"
    again = make()
    again.load_state(search.state())
    assert list(again.steps()) == []
    assert again.stopped == search.stopped


def test_a_last_look_that_finds_something_better_goes_on() -> None:
    def once(solution: np.ndarray) -> Validation:
        looks.append(1)
        return Validation(float(len(looks) == 2), 1.0, 1.0)

    looks: list[int] = []
    search = Search(optimizer("saes"), Counted(), once, 600, 1000, stop_after=30)
    due = [step.evaluations for step in search.steps() if step.validation is not None]
    assert due == [30, 60]


def test_a_budget_that_is_spent_is_no_early_end() -> None:
    search = Search(optimizer("saes"), Counted(), never_better, 30, 10, stop_after=30)
    list(search.steps())
    assert search.stopped is None
