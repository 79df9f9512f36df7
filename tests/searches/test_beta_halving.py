"""--beta auto: rounds, budget, the winner."""

from typing import Any

import numpy as np
import pytest

from pfes.errors import PfesError
from pfes.optimizers import SAES
from pfes.searches.beta_halving import BETAS, BetaHalving
from pfes.searches.log_space import Doubles
from pfes.searches.loop import Search
from pfes.searches.validation import Validation


def make(
    merits: dict[float, float], budget: int, spent: list[float] | None = None, **limits: Any
) -> BetaHalving:
    """Searches whose validation metric depends on β alone."""

    def search(beta: float) -> Search:
        def evaluate(candidates: np.ndarray) -> tuple[Doubles, Doubles]:
            if spent is not None:
                spent.extend([beta] * len(candidates))
            values = (candidates.astype(np.float64) ** 2).sum(axis=1)
            return values, values

        def validate(_: np.ndarray) -> Validation:
            return Validation(merits[beta], 0.0, 1 / (1 + beta))

        return Search(SAES(np.ones(5), 0.3, 10, seed=0), evaluate, validate, budget, 50)

    return BetaHalving(search, budget, **limits)


@pytest.mark.parametrize("winner", BETAS)
@pytest.mark.parametrize("budget", [150, 200, 333, 1000])
def test_the_best_beta_wins_within_the_budget(winner: float, budget: int) -> None:
    spent: list[float] = []
    halving = make({beta: float(beta == winner) for beta in BETAS}, budget, spent)
    steps = list(halving.steps())
    assert len(spent) == budget == halving.evaluations == steps[-1].evaluations
    assert halving.beta == winner
    trials = halving.trials
    assert [trial.beta for trial in trials] == sorted(BETAS)
    assert sum(trial.evaluations for trial in trials) == budget
    costs = sorted(trial.evaluations for trial in trials)
    assert costs[0] == costs[1] == costs[2] < costs[3] < costs[4] >= budget / 2
    assert spent[-1] == winner
    assert halving.selection is not None
    assert halving.selection.evaluations <= budget


def test_a_tie_goes_to_the_lower_cross_entropy() -> None:
    halving = make(dict.fromkeys(BETAS, 0.5), 300)
    list(halving.steps())
    assert halving.beta == 100.0


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(PfesError, match="at least 150"):
        make(dict.fromkeys(BETAS, 0.5), 149)


def test_history_says_which_beta() -> None:
    steps = list(make({beta: beta for beta in BETAS}, 150).steps())
    assert [step.beta for step in steps[:5]] == list(BETAS)
    assert {step.beta for step in steps[-3:]} == {100.0}


def test_minutes_are_those_of_all_betas() -> None:
    merits = {beta: float(beta == 0.1) for beta in BETAS}
    halving = make(merits, 300, minutes=5)
    steps = halving.steps()
    for _ in range(4):  # the first two β have their round
        next(steps)
    state = halving.state()
    state["searches"]["0"]["seconds"] = 200.0
    state["searches"]["1"]["seconds"] = 99.9999999
    again = make(merits, 300, minutes=5)
    again.load_state(state)
    (last,) = again.steps()
    assert last.beta == BETAS[2]
    assert last.validation is not None
    assert again.stopped == "5 minutes were over"
    assert again.beta == 0.1
    assert [trial.beta for trial in again.trials] == [0.1, 1.0, 10.0]


def test_nothing_better_ends_the_last_round_only() -> None:
    halving = make({beta: float(beta == 10.0) for beta in BETAS}, 1500, stop_after=400)
    steps = list(halving.steps())
    assert halving.stopped == "nothing better in the last 400 evaluations"
    assert halving.best.evaluations == 400
    assert 1000 < steps[-1].evaluations < 1500
