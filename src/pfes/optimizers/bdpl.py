"""BDPL: black-box discrete prompt learning (Diao and others, 2023), a policy gradient on tokens."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.optimizers.base import Floats, Optimizer, State
from pfes.optimizers.torch_state import arrays, tensors

CLIP = 3.0  # gradients are clipped to this norm, as in BDPL's code
WEIGHT_DECAY = 0.1  # of AdamW, as in BDPL's code


class BDPL(Optimizer):
    """Learns a distribution over candidate tokens for each position of the prompt.

    A generation samples `population` prompts. The distributions, at first uniform, then follow the
    variance-reduced policy gradient Σ_k (L_k − L̄)/(I−1) · ∇log p, clipped, by a step of AdamW, and
    are projected back to the simplex. The current solution has the likeliest token at each
    position. Prompts without a finite loss are left out of a generation.

    Examples:
        >>> import numpy as np
        >>> search = BDPL(range(10), length=2, learning_rate=0.01, population=50)
        >>> for _ in range(40):
        ...     tokens = search.ask()
        ...     search.tell((tokens != [3, 7]).sum(axis=1))
        >>> search.solution.tolist()
        [3, 7]
    """

    dtype = np.int64

    def __init__(
        self,
        tokens: Sequence[int],
        length: int = 10,
        learning_rate: float = 1e-4,
        population: int = 20,
        seed: int = 0,
    ) -> None:
        self.tokens = np.array(tokens, dtype=np.int64)
        if population < 2:
            raise ValueError(
                f"a policy gradient needs a population of at least 2, not {population}"
            )
        super().__init__(np.repeat(self.tokens[:1], length), learning_rate, seed)
        self.population = population
        self.probabilities = np.full((length, len(self.tokens)), 1 / len(self.tokens))
        # the same memory as the probabilities: AdamW changes both
        self._rows = torch.from_numpy(self.probabilities)
        self._adamw = torch.optim.AdamW([self._rows], learning_rate, weight_decay=WEIGHT_DECAY)
        self._drawn = np.zeros((population, length), dtype=np.int64)  # indices into `tokens`

    def _sample(self) -> NDArray[np.int64]:  # type: ignore[override]
        edges = self.probabilities.cumsum(axis=1)
        edges /= edges[:, -1:]
        uniform = self._rng.random((self.population, len(edges)))  # ~ U[0, 1)
        indices = [np.searchsorted(row, uniform[:, i], side="right") for i, row in enumerate(edges)]
        self._drawn = np.stack(indices, axis=1)
        return self.tokens[self._drawn]

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        finite = np.flatnonzero(np.isfinite(losses))
        if len(finite) < 2:
            return
        advantages = (losses[finite] - losses[finite].mean()) / (len(finite) - 1)
        gradient = np.zeros_like(self.probabilities)
        positions = np.arange(len(gradient))
        for advantage, indices in zip(advantages, self._drawn[finite], strict=True):
            gradient[positions, indices] += advantage / self.probabilities[positions, indices]
        norm = np.linalg.norm(gradient)
        gradient *= min(1.0, CLIP / norm) if norm > 0 else 1.0
        self._rows.grad = torch.from_numpy(gradient)
        self._adamw.step()
        self.probabilities[:] = project_to_simplex(self.probabilities)
        self._solution = self.tokens[self.probabilities.argmax(axis=1)]

    def state(self) -> State:
        moments = self._adamw.state_dict()["state"].get(0, {})
        return super().state() | {
            "probabilities": self.probabilities.copy(),
            "adamw": arrays(moments),
        }

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self.probabilities[:] = state["probabilities"]
        moments = tensors(state["adamw"])
        stored = {"state": {0: moments} if moments else {}}
        self._adamw.load_state_dict(self._adamw.state_dict() | stored)


def project_to_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest probability distribution to each row (Held, Wolfe and Crowder, 1974)."""
    descending = -np.sort(-rows, axis=1)
    excess = descending.cumsum(axis=1) - 1
    ranks = np.arange(1, rows.shape[1] + 1)
    support = (descending * ranks > excess).sum(axis=1)
    shift = excess[np.arange(len(rows)), support - 1] / support
    return np.asarray(np.maximum(rows - shift[:, None], 0.0))
