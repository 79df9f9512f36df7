"""CMA-ES equals plain `cma`, resumes by replay, and stops or restarts as asked."""

import cma
import numpy as np
import pytest

from pfes.optimizers import CMAES
from pfes.optimizers.cmaes import memory_needed


def rosenbrock(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)


def run(es: CMAES, steps: int, function=rosenbrock) -> CMAES:
    for _ in range(steps):
        es.tell(function(es.ask()))
    return es


def test_it_is_plain_cma_on_the_same_random_numbers() -> None:
    ours = run(CMAES(np.zeros(12), 0.5, population=8, seed=3), 40)
    rng = np.random.default_rng(3)
    options = {"popsize": 8, "randn": lambda *s: rng.standard_normal(s), "verbose": -9}
    theirs = cma.CMAEvolutionStrategy(np.zeros(12), 0.5, options | {"seed": np.nan, "verb_log": 0})
    for _ in range(40):
        points = theirs.ask()
        theirs.tell(points, rosenbrock(np.array(points, dtype=np.float32)).tolist())
    np.testing.assert_array_equal(ours.solution, theirs.mean.astype(np.float32))
    assert ours.sigma == theirs.sigma


def test_numpys_global_generator_is_left_alone() -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    run(CMAES(np.zeros(4), 0.5), 5)
    assert np.random.random() == expected  # noqa: NPY002


@pytest.mark.parametrize("stop", [0, 1, 9, 25])
@pytest.mark.parametrize("pending", [False, True])
def test_state_round_trips_bit_for_bit(stop: int, pending: bool) -> None:
    whole, parted = (CMAES(np.zeros(6), 0.5, 6, seed=1) for _ in range(2))
    run(whole, 40)
    run(parted, stop)
    if pending:
        parted.ask()
    continued = CMAES(np.zeros(6), 0.5, 6, seed=1)
    continued.load_state(parted.state())
    run(continued, 40 - stop)
    np.testing.assert_array_equal(whole.solution, continued.solution)
    assert whole.sigma == continued.sigma
    np.testing.assert_array_equal(whole.ask(), continued.ask())


def flat(x: np.ndarray) -> np.ndarray:
    return np.ones(len(x))


def test_its_own_stop_rule_ends_it_with_a_reason() -> None:
    es = CMAES(np.zeros(3), 0.5, 6, on_stop="end")
    for _ in range(2000):
        if es.stopped:
            break
        es.tell(flat(es.ask()))
    assert es.stopped
    assert "flat" in es.stopped or "tol" in es.stopped


def test_it_restarts_from_x0_when_asked_to() -> None:
    es = run(CMAES(np.zeros(3), 0.5, 6, on_stop="restart"), 400, flat)
    assert es.stopped is None
    again = CMAES(np.zeros(3), 0.5, 6, on_stop="restart")
    again.load_state(es.state())
    np.testing.assert_array_equal(es.ask(), again.ask())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_count_as_worst(bad: float) -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        values = ((x.astype(np.float64) - 1) ** 2).sum(axis=1)
        values[::3] = bad
        return values

    es = run(CMAES(np.zeros(4), 0.5, 9), 60, broken)
    assert np.isfinite(es.solution).all()
    assert es.best_value < 0.01
    es = run(CMAES(np.zeros(4), 0.5, 9), 3, lambda x: np.full(len(x), bad))
    np.testing.assert_array_equal(es.solution, np.zeros(4))


def test_memory_grows_with_the_square() -> None:
    assert memory_needed(51_200) > 150e9
    assert memory_needed(5_120) < 2e9


@pytest.mark.parametrize("population", [1, 2])
def test_too_few_candidates_are_refused(population: int) -> None:
    with pytest.raises(ValueError, match="at least 3 candidates"):
        CMAES(np.zeros(4), 0.5, population)
