"""One function evaluation of a search with `--dtype auto`, and what starting one costs."""

from collections.abc import Iterator

import numpy as np

from benchmarks.evaluation import (
    MODEL,
    REPEATS,
    causal_model,
    masked_model,
    objective,
    pairs_of_sentences,
    prompt,
)
from benchmarks.plain import plain_logprobs
from benchmarks.timing import Row, in_turns
from pfes.contract import Batch, Floats
from pfes.models.local.local_model import LocalModel
from pfes.models.source import ModelSource
from pfes.searches.losses import Loss

LOSS_DIFFERENCE = 5e-3  # between a search's precision and float32


def search_precision() -> Iterator[Row]:
    """Candidates as a search has them, against the plain way in float32."""
    model, batch, soft = causal_model(), objective(50).batch, prompt(50)
    fast = model.for_search(None, 50, batch)
    bar = 4.5 if fast is model else 7.0
    yield _row(
        f"one FE, {MODEL}, l = 50, 32 sentences, --dtype auto", model, fast, batch, soft, bar
    )
    masked = masked_model()
    pairs = pairs_of_sentences()
    soft = np.random.default_rng(0).standard_normal((50, 1024), dtype=np.float32) * 0.02
    rounded = masked if fast is model else masked.with_half_products()
    bar = 1.6 if fast is model else 2.5
    yield _row("one FE at RoBERTa-Large's shape, --dtype auto", masked, rounded, pairs, soft, bar)


def _row(
    name: str, model: LocalModel, fast: LocalModel, batch: Batch, soft: Floats, bar: float
) -> Row:
    repeats = REPEATS if model.family == "causal" else 2
    ours, theirs = in_turns(
        repeats,
        lambda: fast.logprobs(soft[None], batch),
        lambda: plain_logprobs(model, soft, batch),
    )
    loss = Loss(1.0)
    found, exact = (loss(m.logprobs(soft[None], batch), batch.labels) for m in (fast, model))
    return Row(
        name, "the plain way in float32", theirs / ours, bar, "at least",
        f"{ours:.2f} s in {fast.precision}, plain {theirs:.2f} s",
        float(np.abs(found - exact).max()), LOSS_DIFFERENCE,
    )  # fmt: skip


def loading() -> Iterator[Row]:
    """From weights to a model that can be asked, in both precisions."""
    source = ModelSource(MODEL)
    known = causal_model()

    def load(paths: bool) -> None:
        module = source.load_module(dtype=known.dtype)
        tried = type(known.paths)(module, known.family, known.paths.tried) if paths else None
        model = LocalModel(MODEL, known.family, module, source.tokenizer, paths=tried)
        model.with_half_products()

    ours, theirs = in_turns(REPEATS, lambda: load(True), lambda: load(False))
    yield Row(
        f"loading {MODEL} for a search, its paths remembered", "trying its paths", ours / theirs,
        0.7, "at most", f"{ours:.2f} s, {theirs:.2f} s",
    )  # fmt: skip
