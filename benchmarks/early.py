"""`python -m benchmarks.early`: what early rejection saves, in real searches, side by side."""

import numpy as np

from benchmarks.evaluation import causal_model, objective
from pfes.early import EarlyRejection
from pfes.loop import Search, Validation
from pfes.objective import Evaluation, Loss, Objective
from pfes.optimizers import SAES, OnePlusOneES, Optimizer
from pfes.tasks.batch import Placement

LENGTH, POPULATION, BUDGET = 10, 10, 20
PLACEMENTS: tuple[Placement, ...] = ("prefix", "suffix")


def search(kind: str, sigma0: float, placement: Placement, early: bool) -> tuple[float, int]:
    """Return the seconds of a search and how many candidates were rejected early."""
    import pfes

    goal = Objective(causal_model(), pfes.load_task("rotten-tomatoes"), LENGTH, placement=placement)
    x0 = goal.initial_prompt(0, "text:Is this review negative or positive? Answer:")
    optimizer: Optimizer = OnePlusOneES(x0, sigma0, 500)
    if kind == "saes-id":
        optimizer = SAES(x0, sigma0, POPULATION, damping_dimension=500)
    rejecting = EarlyRejection(goal, Loss(), goal.prompts(x0[None])[0])
    rejected = 0

    def evaluate(candidates: object) -> Evaluation:
        nonlocal rejected
        prompts = goal.prompts(candidates)  # type: ignore[arg-type]
        if not early:
            return Evaluation(goal.values(prompts))
        found = rejecting(prompts, optimizer.bar)
        rejected += len(found.partial)
        return found

    # what is prepared once is not counted
    goal(x0[None])
    rejecting(goal.prompts(x0[None]), lambda _: np.inf)
    loop = Search(optimizer, evaluate, lambda _: Validation(0, 0, 0), BUDGET, BUDGET)
    *_, last = loop.steps()
    return last.seconds, rejected


def main() -> None:
    objective(LENGTH)
    for placement in PLACEMENTS:
        for kind in ("one-plus-one-id", "saes-id"):
            for sigma0 in (0.03, 0.3):
                plain, _ = search(kind, sigma0, placement, early=False)
                early, rejected = search(kind, sigma0, placement, early=True)
                print(
                    f"{placement} {kind} σ0 {sigma0}: {early / plain:.2f} of the time, "
                    f"{rejected} of {BUDGET} rejected early",
                    flush=True,
                )


if __name__ == "__main__":
    main()
