"""The loop: ask, evaluate, tell, select. A generator of steps."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pfes.contract import Floats
from pfes.optimizers import Optimizer
from pfes.searches.log_space import Doubles
from pfes.searches.validation import Validation
from pfes.system.clock import Clock


@dataclass(frozen=True)
class Step:
    """One generation: what the optimizer was told and where it stands."""

    evaluations: int  # spent so far
    losses: list[float]  # of this generation's candidates
    # of any candidate so far, on its generation's examples; of several β, under the one tried here
    best_loss: float
    # of the candidate with the best loss: the same for every method, whatever that minimises
    best_cross_entropy: float
    sigma: float
    seconds: float  # spent on asking, evaluating and telling so far; without validation
    validation: Validation | None
    selected: bool  # whether the solution validated here is the best so far, of this β
    beta: float | None = None  # the β tried in this step, where a run tries several


@dataclass(frozen=True)
class Selection:
    """The solution that a search returns."""

    solution: Floats  # (d,)
    validation: Validation
    evaluations: int  # spent when it was found


class Search:
    """Spends a budget of evaluations, and keeps the solution that validates best.

    `evaluate` returns what is minimised and the cross-entropy of each candidate.

    The start is the first candidate for selection, so nothing that validates worse is ever kept.
    Before the budget, the search ends when the optimizer says it has `stopped`, when `minutes` are
    over, or when `stop_after` evaluations have passed since a solution was last selected. The time
    is looked at after every `block` of candidates.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        evaluate: Callable[[Floats], tuple[Doubles, Doubles]],
        validate: Callable[[Floats], Validation],
        budget: int,
        eval_every: int,
        clock: Clock | None = None,
        beta: float | None = None,
        minutes: float | None = None,
        stop_after: int | None = None,
        block: int | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.budget = budget
        self.eval_every = eval_every
        self.minutes = minutes
        self.stop_after = stop_after
        self.block = block  # candidates evaluated in one call; None: a whole generation
        self.seconds_elsewhere = (
            0.0  # of the minutes: before the search, and by others that share them
        )
        self.evaluations = 0
        self.seconds = 0.0
        self.selection: Selection | None = None
        self.start = optimizer.solution.copy()  # before the first step, also after a resume
        self.beta = beta  # of its loss, where that has a regulariser
        self.trials: list[Any] = []  # of other β: see `BetaHalving`
        self._best_cross_entropy = np.inf
        self._clock = clock or Clock()
        self._evaluate = evaluate
        self._validate = validate

    @property
    def stopped(self) -> str | None:
        """Why the search ends before its budget, if it does."""
        if self.optimizer.stopped is not None or not self._room(self.budget):
            return self.optimizer.stopped
        if self._time_is_over():
            return (
                "1 minute was over" if self.minutes == 1 else f"{self.minutes:g} minutes were over"
            )
        last = self.selection.evaluations if self.selection is not None else 0
        if self.stop_after is not None and self.evaluations - last >= self.stop_after:
            return f"nothing better in the last {self.evaluations - last} evaluations"
        return None

    def steps(self, until: int | None = None) -> Iterator[Step]:
        """Go on until the budget, or `until` evaluations, are spent.

        The last step looks at validation. State may be saved between any two steps.
        """
        goal = self.budget if until is None else until
        while self._room(goal) and self.stopped is None:
            yield self._step(goal)

    def _room(self, goal: int) -> int:
        """Return how many candidates can be evaluated until a goal is reached."""
        return (goal - self.evaluations) // self.optimizer.cost

    def _step(self, goal: int) -> Step:
        clock = self._clock
        if self.selection is None:
            with clock.measure("validation"):
                self.selection = Selection(self.start, self._validate(self.start), 0)
        began = time.perf_counter()
        with clock.measure("optimizer"):
            candidates = self.optimizer.ask()
        count = min(len(candidates), self._room(self.budget))
        # candidates beyond the budget or the minutes have no value, so they are never selected
        values, entropies = np.full((2, len(candidates)), np.inf)
        with clock.measure("model"):
            count = self._fill(values, entropies, candidates[:count], began)
        best = self.optimizer.best_value
        with clock.measure("optimizer"):
            self.optimizer.tell(values)
        if self.optimizer.best_value < best:
            self._best_cross_entropy = float(entropies[values == self.optimizer.best_value][0])
        before = self.evaluations
        self.evaluations += count * self.optimizer.cost
        self.seconds += time.perf_counter() - began
        due = before // self.eval_every != self.evaluations // self.eval_every
        validation = None
        # a search that would end for want of something better may find it in this very look
        if due or not self._room(goal) or self.stopped is not None:
            with clock.measure("validation"):
                validation = self._validate(self.optimizer.solution)
        return Step(
            evaluations=self.evaluations,
            losses=values[:count].tolist(),
            best_loss=self.optimizer.best_value,
            best_cross_entropy=self._best_cross_entropy,
            sigma=self.optimizer.sigma,
            seconds=self.seconds,
            validation=validation,
            selected=validation is not None and self._select(validation),
        )

    def _fill(self, values: Doubles, entropies: Doubles, candidates: Floats, began: float) -> int:
        """Evaluate candidates block by block while there is time; return how many have a value."""
        size = self.block or len(candidates)
        done = 0
        while done < len(candidates):
            part = candidates[done : done + size]
            where = slice(done, done + len(part))
            values[where], entropies[where] = self._evaluate(part)
            done += len(part)
            if self._time_is_over(time.perf_counter() - began):
                break
        return done

    def _time_is_over(self, running: float = 0.0) -> bool:
        """Say whether the minutes are over, with the seconds that the present step has run."""
        spent = self.seconds + self.seconds_elsewhere + running
        return self.minutes is not None and spent >= 60 * self.minutes

    def _select(self, validation: Validation) -> bool:
        assert self.selection is not None
        if not validation.beats(self.selection.validation):
            return False
        self.selection = Selection(self.optimizer.solution.copy(), validation, self.evaluations)
        return True

    def state(self) -> dict[str, Any]:
        """Return all that `load_state` needs to continue bit for bit."""
        state = {
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "best_cross_entropy": self._best_cross_entropy,
            "optimizer": self.optimizer.state(),
            "selection": None,
        }
        if self.selection is not None:
            state["selection"] = {
                "solution": self.selection.solution,
                "validation": asdict(self.selection.validation),
                "evaluations": self.selection.evaluations,
            }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.evaluations = state["evaluations"]
        self.seconds = state["seconds"]
        self._best_cross_entropy = state.get("best_cross_entropy", np.inf)  # older ones lack it
        self.optimizer.load_state(state["optimizer"])
        kept = state["selection"]
        if kept is not None:
            validation = Validation(**kept["validation"])
            self.selection = Selection(kept["solution"], validation, kept["evaluations"])
