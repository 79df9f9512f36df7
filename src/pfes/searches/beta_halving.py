"""`--beta auto`: the weight of the regulariser by successive halving, within one budget."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pfes.contract import Floats
from pfes.errors import SettingError
from pfes.searches.loop import Search, Selection, Step

# the paper's magnitudes; the default first, so that it wins a tie
BETAS = (1.0, 0.1, 10.0, 0.01, 100.0)
SURVIVORS = (2, 1)  # of the first and the second round
ROUNDS = len(SURVIVORS) + 1  # the last one is the winner's alone
SHARE = ROUNDS * len(BETAS)  # the first round gives each β this part of the budget
# the part of the budget that the best β gets over all three rounds
WINNERS_SHARE = 1 / SHARE + 1 / (ROUNDS * SURVIVORS[0]) + 1 / ROUNDS


@dataclass(frozen=True)
class Trial:
    """How far one β got."""

    beta: float
    evaluations: int  # spent on it
    validation: float  # metric of its best solution on the validation set
    cross_entropy: float  # of that solution on the validation set


class BetaHalving:
    """Searches with several β side by side; the better ones go on.

    The three rounds have a third of the budget each: five searches, then the best two, then the
    best one. A search goes on where it stood, so nothing of the winner's is lost. Searches are
    compared by the best solution of each: by its validation metric, or its loss as the reading
    answers, ties by cross-entropy. Steps, selection and state are those of a single `Search`.

    `minutes` are those of all searches together; when they are over, the best so far wins.
    `stop_after` applies to the last round: before it, a search that finds nothing better leaves
    the field to the others anyway.
    """

    def __init__(
        self,
        make: Callable[[float], Search],
        budget: int,
        minutes: float | None = None,
        stop_after: int | None = None,
    ) -> None:
        self.budget = budget
        self.minutes = minutes
        self.seconds_elsewhere = 0.0  # of the minutes, before the searches
        self.stop_after = stop_after
        self._searches = {beta: make(beta) for beta in BETAS}
        self._ranked: list[list[float]] = []  # after each round, its searches from best to worst
        self._selected_at = dict.fromkeys(BETAS, 0)
        generation = max(len(search.optimizer.ask()) for search in self._searches.values())
        check_budget(budget, generation)
        whole = budget // ROUNDS // generation  # generations of a round
        first = whole // len(BETAS)
        self._goals = [first * generation, (first + whole // SURVIVORS[0]) * generation]

    @property
    def beta(self) -> float:
        """The best β so far."""
        return self._ranked[-1][0] if self._ranked else BETAS[0]

    @property
    def best(self) -> Search:
        """The search with the best β so far."""
        return self._searches[self.beta]

    @property
    def start(self) -> Floats:
        """The solution before the first step, the same for every β."""
        return self.best.start

    @property
    def evaluations(self) -> int:
        return sum(search.evaluations for search in self._searches.values())

    @property
    def seconds(self) -> float:
        return sum(search.seconds for search in self._searches.values())

    @property
    def stopped(self) -> str | None:
        return self.best.stopped

    @property
    def selection(self) -> Selection | None:
        kept = self.best.selection
        return kept and replace(kept, evaluations=self._selected_at[self.beta])

    @property
    def trials(self) -> list[Trial]:
        """What was tried, in rising order of β."""
        return [
            Trial(
                beta,
                search.evaluations,
                search.selection.validation.metric,
                search.selection.validation.cross_entropy,
            )
            for beta, search in sorted(self._searches.items())
            if search.selection is not None
        ]

    def steps(self) -> Iterator[Step]:
        """Go on until the budget is spent. State may be saved between any two steps."""
        for number, goal in enumerate(self._goals):
            entered = self._entered(number)
            if len(self._ranked) > number:
                continue
            for beta in entered:
                yield from self._advance(beta, goal)
            self._ranked.append(sorted(entered, key=self._merit))
        (winner,) = self._entered(len(self._goals))
        search = self._searches[winner]
        search.budget = search.evaluations + self.budget - self.evaluations
        search.stop_after = self.stop_after
        yield from self._advance(winner, search.budget)

    def _entered(self, number: int) -> list[float]:
        """Return the β that take part in a round, by its number."""
        return list(BETAS) if number == 0 else self._ranked[number - 1][: SURVIVORS[number - 1]]

    def _advance(self, beta: float, goal: int) -> Iterator[Step]:
        search = self._searches[beta]
        search.minutes = self.minutes
        search.seconds_elsewhere = self.seconds_elsewhere + self.seconds - search.seconds
        for step in search.steps(goal):
            if step.selected:
                self._selected_at[beta] = self.evaluations
            yield replace(step, evaluations=self.evaluations, seconds=self.seconds, beta=beta)

    def _merit(self, beta: float) -> tuple[float, float]:
        selection = self._searches[beta].selection
        if selection is None:  # the minutes were over before it began
            return math.inf, math.inf
        return selection.validation.merit

    def state(self) -> dict[str, Any]:
        """Return all that `load_state` needs to continue bit for bit."""
        return {
            "searches": {str(i): self._searches[beta].state() for i, beta in enumerate(BETAS)},
            "ranked": [list(ranking) for ranking in self._ranked],
            "selected_at": list(self._selected_at.values()),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        for i, beta in enumerate(BETAS):
            self._searches[beta].load_state(state["searches"][str(i)])
        self._ranked = state["ranked"]
        self._selected_at = dict(zip(BETAS, state["selected_at"], strict=True))


def check_budget(budget: int, generation: int) -> None:
    """Refuse a budget that does not give every β a generation of candidates."""
    least = least_budget(generation)
    if budget < least:
        raise SettingError(
            "beta",
            f"auto needs a budget of at least {least}: {len(BETAS)} values in {ROUNDS} rounds, "
            f"{generation} evaluations a generation",
        )


def least_budget(generation: int) -> int:
    """Return the smallest budget that gives every β a generation of candidates."""
    return SHARE * generation
