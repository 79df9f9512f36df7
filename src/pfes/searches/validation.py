"""How a solution is judged on the validation examples, and which of two is better."""

from dataclasses import dataclass

import numpy as np

from pfes.searches.log_space import Doubles

MARGIN = 1.0  # standard errors by which a solution must beat what is free (docs/methods.md)


@dataclass(frozen=True)
class Validation:
    """A solution's figures on the validation examples.

    With `read_entropy`, solutions are judged by how the run's reading answers, else by the metric.
    """

    metric: float
    loss: float  # what the search minimises
    cross_entropy: float  # comparable between values of β, as the loss is not
    read_entropy: float | None = None  # cross-entropy of the labels' probabilities, as read
    ahead: float | None = None  # how far that is below what is free, in standard errors

    def beats(self, other: "Validation") -> bool:
        """Say whether this one is to be kept instead of another, which was there first.

        By metric: a better metric, or the same and a lower loss. By loss: a lower cross-entropy,
        and, where a search started from what is free, one that is below that by more than chance
        would often make it.
        """
        if self.ahead is not None and self.ahead < MARGIN:
            return False
        return self.rank < other.rank

    @property
    def rank(self) -> tuple[float, float]:
        """Figures by which solutions of one search are ordered, the best first."""
        if self.read_entropy is None:
            return -self.metric, self.loss
        return self.read_entropy, self.loss

    @property
    def merit(self) -> tuple[float, float]:
        """Figures by which searches with different losses are ordered, the best first."""
        return self.rank[0], self.cross_entropy


def steps_ahead(entropies: Doubles, reference: Doubles) -> float:
    """Return by how many standard errors some examples' mean loss is below what it was.

    Both are `(examples,)`, of the same examples. Where both are the same, that is zero.
    """
    with np.errstate(invalid="ignore"):  # two losses without bound are told apart by nothing
        gains = reference - entropies
    mean = float(gains.mean()) if len(gains) else 0.0
    if not np.isfinite(mean):
        return 0.0 if np.isnan(mean) else float(np.copysign(np.inf, mean))
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
    if error == 0:
        return float(np.copysign(np.inf, mean)) if mean else 0.0
    return mean / error
