"""The strategies against short references of the paper's algorithms, and their properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from pfes.optimizers import SAES, WES, OnePlusOneES, Optimizer
from pfes.optimizers.wes import STEP


def sphere(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float64) ** 2).sum(axis=-1)


def run(es: Optimizer, function=sphere, steps: int = 20) -> Optimizer:
    for _ in range(steps):
        es.tell(function(es.ask()))
    return es


def reference_one_plus_one(x, sigma, dimension, seed, steps):
    rng, tau, fx = np.random.default_rng(seed), math.sqrt(2 * dimension), sphere(x)
    for _ in range(steps):
        u = rng.standard_normal((1, x.size), dtype=np.float32)[0]
        child = x + np.float32(sigma) * u
        success = sphere(child) <= fx
        if success:
            x, fx = child, sphere(child)
        sigma *= math.exp((success - 1 / 5) / tau)
    return x, sigma


def reference_saes(x, sigma, dimension, seed, steps, lam, mu):
    rng, tau = np.random.default_rng(seed), math.sqrt(2 * dimension)
    for _ in range(steps):
        sigmas = sigma * np.exp(rng.standard_normal(lam) / tau)
        u = rng.standard_normal((lam, x.size), dtype=np.float32)
        children = x + sigmas.astype(np.float32)[:, None] * u
        best = sorted(range(lam), key=lambda i: sphere(children[i]))[:mu]
        x = np.mean([children[i] for i in best], axis=0, dtype=np.float32)
        sigma = float(np.mean(sigmas[best]))
    return x, sigma


@pytest.mark.parametrize("dimension", [None, 5.0, 500.0])
@pytest.mark.parametrize("seed", range(5))
def test_one_plus_one_follows_the_paper(dimension: float | None, seed: int) -> None:
    x0 = np.linspace(-1, 1, 40, dtype=np.float32)
    es = run(OnePlusOneES(x0, 0.3, dimension, seed), steps=61)  # the first evaluates x0
    x, sigma = reference_one_plus_one(x0, 0.3, dimension or 40, seed, 60)
    np.testing.assert_allclose(es.solution, x, rtol=1e-5, atol=1e-6)
    assert es.sigma == pytest.approx(sigma, rel=1e-12)


@pytest.mark.parametrize("dimension", [None, 5.0, 500.0])
@pytest.mark.parametrize(("lam", "mu"), [(20, None), (10, 3), (4, 4), (1, 1)])
def test_saes_follows_the_paper(dimension: float | None, lam: int, mu: int | None) -> None:
    x0 = np.linspace(-1, 1, 40, dtype=np.float32)
    es = run(SAES(x0, 0.3, lam, mu, dimension, seed=7), steps=25)
    x, sigma = reference_saes(x0, 0.3, dimension or 40, 7, 25, lam, mu or lam // 4)
    np.testing.assert_allclose(es.solution, x, rtol=1e-4, atol=1e-5)
    assert es.sigma == pytest.approx(sigma, rel=1e-9)


def reference_wes(x, sigma, dimension, seed, steps, lam):
    """Weights by rank from order statistics, which scipy integrates."""
    rng, tau = np.random.default_rng(seed), math.sqrt(2 * dimension)
    scores = np.array([-expected_order_statistic(i, lam) for i in range(1, lam + 1)])
    weights = STEP * scores / np.linalg.norm(scores)
    for _ in range(steps):
        sigmas = sigma * np.exp(rng.standard_normal(lam) / tau)
        steps_taken = sigmas[:, None] * rng.standard_normal((lam, x.size), dtype=np.float32)
        order = np.argsort(sphere((x + steps_taken).astype(np.float32)))
        x = x + weights @ steps_taken[order]
        shares = scores / scores[scores > 0].sum()
        sigma *= math.exp(shares @ np.log(sigmas[order] / sigma))
    return x, sigma


def expected_order_statistic(i: int, count: int) -> float:
    def density(z: float) -> float:
        below = norm.cdf(z)
        return z * norm.pdf(z) * below ** (i - 1) * (1 - below) ** (count - i)

    return math.comb(count, i) * i * quad(density, -9, 9)[0]


@pytest.mark.parametrize("lam", [2, 7, 20])
@pytest.mark.parametrize("dimension", [5.0, 500.0])
def test_wes_has_the_weights_of_order_statistics(lam: int, dimension: float) -> None:
    x0 = np.linspace(-1, 1, 40, dtype=np.float32)
    es = run(WES(x0, 0.05, lam, dimension, seed=7), steps=1)
    x, sigma = reference_wes(x0, 0.05, dimension, 7, 1, lam)
    # Blom's approximation is within a hundredth of the integral
    np.testing.assert_allclose(es.solution - x0, x - x0, atol=0.02 * np.abs(x - x0).max())
    assert es.sigma == pytest.approx(sigma, rel=0.01)


def test_wes_uses_every_child() -> None:
    """On a linear function it gets further down than SaES with steps that are as long."""
    down = np.ones(2000) / np.sqrt(2000)
    start = np.zeros(2000)
    wes = run(WES(start, 0.1, 20, 500), lambda x: x @ down)
    saes = run(SAES(start, 0.1, 20, 5, 500), lambda x: x @ down)
    gains = [-(es.solution @ down) / np.linalg.norm(es.solution) for es in (wes, saes)]
    assert gains[0] > 1.3 * gains[1]


def test_wes_gives_equal_children_equal_weights() -> None:
    es = WES(np.zeros(6), 0.1, 4, seed=1)
    children = es.ask()
    es.tell([1.0, 2.0, 2.0, 3.0])
    expected = STEP * (children[0] - children[3]) / np.sqrt(2.2)
    np.testing.assert_allclose(es.solution, expected, rtol=0.1)
    stays = es.solution.copy()
    es.ask()
    es.tell([5.0] * 4)
    np.testing.assert_array_equal(es.solution, stays)


def test_wes_gives_a_child_without_a_value_no_weight() -> None:
    es = WES(np.zeros(6), 0.1, 4, seed=1)
    children = es.ask()
    es.tell([1.0, np.nan, 2.0, np.inf])
    towards = children[0] - children[2]
    cosine = es.solution @ towards / np.linalg.norm(es.solution) / np.linalg.norm(towards)
    assert cosine == pytest.approx(1, abs=1e-5)


MAKERS = {
    "one-plus-one": lambda x0, seed=0, dim=None: OnePlusOneES(x0, 0.5, dim, seed),
    "saes": lambda x0, seed=0, dim=None: SAES(x0, 0.5, 8, 3, dim, seed),
    "wes": lambda x0, seed=0, dim=None: WES(x0, 0.5, 8, dim, seed),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@every
def test_damping_dimension_changes_tau_alone(make) -> None:
    standard, intrinsic = make(np.ones(50)), make(np.ones(50), dim=50)
    assert standard.tau == intrinsic.tau == math.sqrt(100)
    np.testing.assert_array_equal(run(standard).solution, run(intrinsic).solution)
    assert make(np.ones(50), dim=8).tau == 4.0


MONOTONE = {
    "log": np.log,
    "cube": lambda v: v**3 - 7,
    "shift": lambda v: 5 * v + 100,
    "bounded": lambda v: -1 / (1 + v),
}


@every
@pytest.mark.parametrize("transform", MONOTONE.values(), ids=MONOTONE.keys())
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_only_ranks_matter(make, transform, seed: int) -> None:
    plain = run(make(np.ones(10), seed))
    transformed = run(make(np.ones(10), seed), lambda x: transform(sphere(x)))
    np.testing.assert_array_equal(plain.solution, transformed.solution)
    assert plain.sigma == transformed.sigma


@every
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), offset=st.floats(-8, 8, width=32))
def test_translation_moves_the_whole_trajectory(make, seed: int, offset: float) -> None:
    here = run(make(np.ones(10), seed))
    there = run(make(np.ones(10) + offset, seed), lambda x: sphere(x - np.float64(offset)))
    np.testing.assert_allclose(here.solution + offset, there.solution, atol=1e-4)
    assert here.sigma == there.sigma


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_count_as_worst(make, bad: float) -> None:
    def broken(x):
        values = sphere(x)
        values[x[:, 0] > 1] = bad
        return values

    es = make(np.zeros(5))
    for _ in range(40):
        es.tell(broken(es.ask()))
        assert np.isfinite(es.solution).all()
        assert np.isfinite(es.sigma)
    assert es.best[0] <= 1
    assert np.isfinite(es.best_value)


@every
def test_without_a_finite_value_the_solution_stays(make) -> None:
    es = run(make(np.ones(5)), lambda x: np.full(len(x), np.nan), steps=5)
    np.testing.assert_array_equal(es.solution, np.ones(5))
    assert es.best_value == np.inf


@every
@pytest.mark.parametrize("pending", [False, True])
def test_state_round_trips_bit_for_bit(make, pending: bool) -> None:
    whole, parted = make(np.ones(12), 3), make(np.ones(12), 3)
    run(whole, steps=30)
    run(parted, steps=11)
    if pending:
        parted.ask()
    continued = make(np.zeros(12), 99)
    continued.load_state(parted.state())
    run(continued, steps=19)
    np.testing.assert_array_equal(whole.solution, continued.solution)
    np.testing.assert_array_equal(whole.best, continued.best)
    assert (whole.sigma, whole.best_value) == (continued.sigma, continued.best_value)
    np.testing.assert_array_equal(whole.ask(), continued.ask())


@every
def test_state_is_a_copy(make) -> None:
    es = run(make(np.ones(5)))
    state = es.state()
    state["solution"][:] = 7
    assert not (es.solution == 7).any()


@every
def test_tell_changes_none_of_its_arguments(make) -> None:
    es = make(np.ones(5))
    values = np.full(len(es.ask()), np.nan)
    es.tell(values)
    assert np.isnan(values).all()


@every
def test_ask_repeats_until_told(make) -> None:
    es = run(make(np.ones(5)), steps=2)
    np.testing.assert_array_equal(es.ask(), es.ask())


@every
def test_arrays_are_float32(make) -> None:
    es = run(make(np.ones(5, dtype=np.float64)))
    assert {es.ask().dtype, es.solution.dtype, es.best.dtype} == {np.dtype(np.float32)}


@every
def test_seeds_differ_and_repeat(make) -> None:
    first, again, other = (run(make(np.ones(5), seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.solution, again.solution)
    assert not np.array_equal(first.solution, other.solution)


@every
def test_best_is_the_lowest_ever_told(make) -> None:
    es, seen = make(np.ones(5)), []
    for _ in range(30):
        values = sphere(es.ask())
        seen += values.tolist()
        es.tell(values)
    assert es.best_value == min(seen)
    assert sphere(es.best) == pytest.approx(min(seen))


@every
def test_a_million_dimensions(make) -> None:
    es = make(np.zeros(1_000_000))
    for _ in range(2):
        x = es.ask()
        assert x.shape[1] == 1_000_000
        es.tell(x[:, 0])
    assert es.solution.shape == (1_000_000,)


@every
def test_wrong_use_raises(make) -> None:
    es = make(np.ones(3))
    with pytest.raises(RuntimeError, match="ask"):
        es.tell([1.0])
    es.ask()
    with pytest.raises(ValueError, match="one per candidate"):
        es.tell(np.ones(99))
    with pytest.raises(ValueError, match="dimensions"):
        es.load_state(make(np.ones(4)).state())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x0": np.ones((2, 2))}, "vector"),
        ({"x0": []}, "non-empty"),
        ({"x0": [np.nan]}, "finite"),
        ({"sigma0": 0.0}, "sigma0"),
        ({"sigma0": -1.0}, "sigma0"),
        ({"sigma0": np.inf}, "sigma0"),
        ({"damping_dimension": 0}, "damping_dimension"),
        ({"parents": 30}, "parents"),
        ({"parents": 0}, "parents"),
        ({"population": 0}, "population"),
    ],
)
def test_senseless_arguments_are_refused(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SAES(**({"x0": np.ones(3), "sigma0": 1.0} | arguments))


def test_wes_needs_two_children() -> None:
    with pytest.raises(ValueError, match="2 children"):
        WES(np.ones(3), 1.0, population=1)


def test_saes_population_of_one_and_default_parents() -> None:
    assert SAES(np.ones(3), 1.0).parents == 5
    assert SAES(np.ones(3), 1.0, population=3).parents == 1
