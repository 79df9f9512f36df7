"""`python -m benchmarks.growth`: how the cost of an evaluation grows, as docs/performance.png."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.evaluation import causal_model, prompt
from benchmarks.suffix import texts_of
from benchmarks.timing import in_turns
from pfes.contract import Placement
from pfes.system.colors import BLUE, ORANGE

LENGTH, EXAMPLES, TOKENS, POPULATION = 10, 32, 30, 1  # what the others are while one grows
GRID: dict[str, tuple[int, ...]] = {
    "prompt length l": (2, 5, 10, 20, 50),
    "examples": (8, 16, 32, 64),
    "tokens per text": (15, 30, 60, 120),
    "candidates λ": (1, 2, 4, 8),
}
PLACEMENTS: tuple[Placement, ...] = ("prefix", "suffix")
DOCS = Path(__file__).parents[1] / "docs"


def work(axis: str, value: int, placement: Placement) -> Callable[[], object]:
    """Return one evaluation with one quantity changed."""
    size = dict(zip(GRID, (LENGTH, EXAMPLES, TOKENS, POPULATION), strict=True)) | {axis: value}
    length, examples, tokens, candidates = size.values()
    batch = texts_of(tokens, examples, placement)
    soft = np.repeat(prompt(length)[None], candidates, axis=0)
    return lambda: causal_model().logprobs(soft, batch)


def main() -> None:
    found: dict[str, dict[str, list[float]]] = {}
    for axis, values in GRID.items():
        pairs = [(value, placement) for value in values for placement in PLACEMENTS]
        times = in_turns(3, *(work(axis, *pair) for pair in pairs))
        found[axis] = {
            placement: [t for (_, p), t in zip(pairs, times, strict=True) if p == placement]
            for placement in PLACEMENTS
        }
        print(axis, json.dumps(found[axis]), flush=True)
    _draw(found)


def _draw(found: dict[str, dict[str, list[float]]]) -> None:
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    axes = figure.subplots(1, len(GRID), sharey=True)
    for place, (axis, values) in zip(axes, GRID.items(), strict=True):
        for placement, color, marker in zip(PLACEMENTS, (BLUE, ORANGE), "os", strict=True):
            place.plot(values, found[axis][placement], marker + "-", color=color, label=placement)
        place.set_xscale("log", base=2)
        place.set_yscale("log", base=2)
        place.set_xticks(values, map(str, values))
        place.yaxis.set_major_formatter("{x:g}")
        place.minorticks_off()
        place.set_xlabel(axis)
        place.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend(frameon=False)
    figure.savefig(DOCS / "performance.png", dpi=150)


if __name__ == "__main__":
    main()
