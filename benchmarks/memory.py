"""Peak memory of a search over the weights, against what it is stated to need."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import Row

POPULATION = 20


def search_memory() -> Iterator[Row]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory"], capture_output=True, text=True, check=True
    )
    measured, stated = map(float, done.stdout.split()[-2:])
    yield Row(
        "peak memory of a search over the weights", "a packed pass and 4·λ·d floats, as stated",
        measured / stated, 1.0, "at most",
        f"{measured / 1e6:.0f} MB, stated {stated / 1e6:.0f} MB",
    )  # fmt: skip


def stated(tokens: int, answers: int, config: Any, d: int) -> float:
    """Return the bytes that docs/performance.md states, in float32."""
    activations = tokens * (12 * config.hidden_size + 3 * config.intermediate_size)
    logits = 3 * answers * config.vocab_size
    return 4.0 * float(activations + logits + 4 * POPULATION * d)


def status(name: str) -> float:
    """Return a figure of this process's memory in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def main() -> None:
    """Load, evaluate a short prompt to bring in every library, then search and look again."""
    from benchmarks.evaluation import causal_model, objective, prompt
    from pfes.optimizers import SAES

    model, whole = causal_model(), objective(50)
    few = whole.batch.take(range(1))
    model.logprobs(prompt(50)[None, :1], few)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of loading: forget it
    search = SAES(whole.initial_prompt(), 0.1, POPULATION, damping_dimension=500)
    for _ in range(2):
        candidates = search.ask()
        values = [whole(candidate[None])[0] for candidate in candidates[:2]]
        search.tell([*values, *([9.0] * (POPULATION - 2))])
    tokens = 50 + sum(map(len, whole.batch.token_ids))
    peak = status("VmHWM") - before
    print(peak, stated(tokens, len(whole.batch), model.module.config, whole.dimension))


if __name__ == "__main__":
    main()
