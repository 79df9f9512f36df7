"""ZO-SGD against its formula."""

import math

import numpy as np
import pytest

from pfes.optimizers import ZOSGD


def bowl(x: np.ndarray) -> np.ndarray:
    return ((x.astype(np.float64) - 1) ** 2).sum(axis=-1)


def run(zo: ZOSGD, steps: int) -> ZOSGD:
    for _ in range(steps):
        zo.tell(bowl(zo.ask()))
    return zo


def share(schedule: str, done: float) -> float:
    return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[
        schedule
    ]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_it_follows_the_formula(schedule: str) -> None:
    zo = run(ZOSGD(np.zeros(15), 0.01, 1e-2, schedule, 50, seed=4), 50)  # type: ignore[arg-type]
    rng, x = np.random.default_rng(4), np.zeros(15, dtype=np.float32)
    for step in range(50):
        u = rng.standard_normal(15, dtype=np.float32)
        offset = np.float32(1e-2) * u
        slope = (bowl(x + offset) - bowl(x - offset)) / 2e-2
        x = x - np.float32(0.01 * share(schedule, step / 50) * slope) * u
    np.testing.assert_allclose(zo.solution, x, rtol=1e-5, atol=1e-6)
    assert zo.sigma == pytest.approx(0.01 * share(schedule, 1.0), abs=1e-12)


def test_it_descends() -> None:
    assert bowl(run(ZOSGD(np.zeros(15), 0.02, 1e-3), 300).solution) < 0.1


def test_two_candidates_a_step() -> None:
    zo = ZOSGD(np.ones(5), 0.1, 0.5)
    ahead, behind = zo.ask()
    np.testing.assert_allclose((ahead + behind) / 2, np.ones(5), atol=1e-6)


@pytest.mark.parametrize("values", [[np.nan, 1.0], [1.0, np.inf], [-np.inf, 1.0]])
def test_a_step_without_two_values_moves_nothing(values: list[float]) -> None:
    zo = ZOSGD(np.ones(5), 0.1, 0.5)
    zo.ask()
    zo.tell(values)
    np.testing.assert_array_equal(zo.solution, np.ones(5))


def test_state_round_trips_bit_for_bit() -> None:
    def make() -> ZOSGD:
        return ZOSGD(np.zeros(9), 0.02, 1e-2, "cosine", 40, seed=2)

    whole, continued = run(make(), 40), make()
    continued.load_state(run(make(), 13).state())
    run(continued, 27)
    np.testing.assert_array_equal(whole.solution, continued.solution)
    assert whole.sigma == continued.sigma


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": 0.0}, "radius"),
        ({"schedule": "cosine"}, "steps"),
        ({"learning_rate": -1}, "sigma0"),
    ],
)
def test_senseless_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ZOSGD(np.ones(3), **arguments)
