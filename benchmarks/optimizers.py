"""What the optimizer itself costs."""

from collections.abc import Iterator

import numpy as np

from benchmarks.evaluation import causal_model, objective, prompt
from benchmarks.timing import Row, in_turns, seconds
from pfes.optimizers import CMAES, SAES
from pfes.searches.spaces import FullSpace, RandomSubspace

D, POPULATION, GENERATIONS = 51_200, 20, 20


def saes_alone() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    search = SAES(np.zeros(D), 0.1, POPULATION, damping_dimension=500)
    values = rng.random(POPULATION)

    def ours() -> None:
        search.ask()
        search.tell(values)

    def draw() -> None:
        rng.standard_normal((POPULATION, D), dtype=np.float32)

    mine, alone = in_turns(50, ours, draw)
    theirs = _pypop7()
    yield Row(
        f"ask + tell, SaES, d = {D:,}, λ = {POPULATION}", "pypop7's SAES",
        None if theirs is None else theirs / mine, 8.0, "at least",
        f"{mine * 1e3:.1f} ms" + ("; pypop7 is not installed" if theirs is None
                                  else f", pypop7 {theirs * 1e3:.1f} ms"),
    )  # fmt: skip
    yield Row(
        "the same", "drawing its normal numbers alone", mine / alone, 2.0, "at most",
        f"{mine * 1e3:.1f} ms, {alone * 1e3:.1f} ms",
    )  # fmt: skip


def _pypop7() -> float | None:
    """Return the seconds of one generation, with a function that costs nothing."""
    try:
        from pypop7.optimizers.es import saes
    except ImportError:
        return None
    problem = {
        "fitness_function": lambda x: float(x[0]), "ndim_problem": D,
        "lower_boundary": -5 * np.ones(D), "upper_boundary": 5 * np.ones(D),
    }  # fmt: skip

    def run(generations: int) -> float:
        options = {
            "max_function_evaluations": generations * POPULATION, "seed_rng": 0, "sigma": 0.1,
            "n_individuals": POPULATION, "mean": np.zeros(D), "verbose": 0,
            "saving_fitness": 0,
        }  # fmt: skip
        return seconds(saes.SAES(problem, options).optimize)

    run(2)
    return (run(2 + GENERATIONS) - run(2)) / GENERATIONS


def saes_over_bbt() -> Iterator[Row]:
    """Seconds per FE; the model's own time is the same on both sides, so it is measured once."""
    model, batch, soft = causal_model(), objective(50).batch, prompt(50)
    values = np.random.default_rng(0).random(POPULATION)
    subspace, full = RandomSubspace(soft, 500, 0), FullSpace(soft)
    bbt, saes = CMAES(subspace.start, 1.0, POPULATION), SAES(full.start, 0.1, POPULATION)

    def generation_of_bbt() -> None:
        subspace.prompts(bbt.ask())
        bbt.tell(values)

    def generation_of_saes() -> None:
        full.prompts(saes.ask())
        saes.tell(values)

    work = (generation_of_saes, generation_of_bbt, lambda: model.logprobs(soft[None], batch))
    mine, theirs, evaluation = in_turns(5, *work)
    ratio = (evaluation + mine / POPULATION) / (evaluation + theirs / POPULATION)
    yield Row(
        "Time/FE, saes-id-cr, l = 50", "bbt (the paper: 1.06)", ratio, 1.01, "at most",
        f"own part per FE {mine / POPULATION * 1e3:.2f} ms, bbt "
        f"{theirs / POPULATION * 1e3:.2f} ms, model {evaluation:.2f} s",
    )  # fmt: skip
