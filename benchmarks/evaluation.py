"""One function evaluation against the plain way and against the machine's limit."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

import pfes
from benchmarks.plain import largest_difference, plain_logprobs
from benchmarks.timing import Row, in_turns
from pfes.contract import Batch, Floats
from pfes.models.local.last_layer import Readout
from pfes.models.local.local_model import LocalModel
from pfes.models.local.packed import PackedEvaluator
from pfes.searches.objective import Objective

MODEL = "smollm2-135m"
TASK = "rotten-tomatoes"
REPEATS = 5
TOLERANCE = 1e-3  # of log-probabilities between two orders of float32 sums, 30 layers deep


@cache
def causal_model() -> LocalModel:
    return pfes.load_model(MODEL)


@cache
def objective(length: int) -> Objective:
    return Objective(causal_model(), pfes.load_task(TASK), length)


def prompt(length: int) -> Floats:
    goal = objective(length)
    return np.asarray(goal.prompts(goal.initial_prompt()[None])[0])


def against_plain() -> Iterator[Row]:
    model, batch, soft = causal_model(), objective(50).batch, prompt(50)
    name = f"one FE, {MODEL}, l = 50, 32 sentences, prefix"
    yield _row(name, model, batch, soft, bar=4.0, repeats=REPEATS)


def _row(name: str, model: LocalModel, batch: Batch, soft: Floats, bar: float, repeats: int) -> Row:
    ours, theirs = in_turns(
        repeats,
        lambda: model.logprobs(soft[None], batch),
        lambda: plain_logprobs(model, soft, batch),
    )
    found, plain = model.logprobs(soft[None], batch)[0], plain_logprobs(model, soft, batch)
    return Row(
        name, "the plain way", theirs / ours, bar, "at least",
        f"{ours:.2f} s, plain {theirs:.2f} s", largest_difference(found, plain), TOLERANCE,
    )  # fmt: skip


def against_limit() -> Iterator[Row]:
    """The limit: every token through every matrix of the layers, and nothing else."""
    model, batch, soft = causal_model(), objective(50).batch, prompt(50)
    (layout,) = PackedEvaluator(model.module, Readout(model.module)).layouts(batch, 50, 4096)
    tokens = len(layout.positions)  # each only once
    layers = model.module.base_model.layers
    matrices = [m.weight for m in layers.modules() if isinstance(m, torch.nn.Linear)]
    inputs = {width: torch.randn(tokens, width) for width in {m.shape[1] for m in matrices}}

    @torch.inference_mode()
    def products() -> None:
        for matrix in matrices:
            torch.nn.functional.linear(inputs[matrix.shape[1]], matrix)

    ours, limit = in_turns(REPEATS, lambda: model.logprobs(soft[None], batch), products)
    flops = 2 * tokens * sum(m.numel() for m in matrices)
    yield Row(
        "the same", "the limit: its matrix products alone", limit / ours, 0.75, "at least",
        f"{ours:.2f} s, limit {limit:.2f} s at {flops / limit / 1e9:.0f} GFLOPS",
    )  # fmt: skip


@cache
def masked_model() -> LocalModel:
    """RoBERTa-Large's shape with random weights: how fast does not depend on the weights."""
    import transformers

    config = transformers.RobertaConfig(
        vocab_size=50265, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    module = transformers.RobertaForMaskedLM(config)
    return LocalModel("roberta-large", "masked", module, causal_model().tokenizer)


def masked_against_plain() -> Iterator[Row]:
    model, batch = masked_model(), pairs_of_sentences()
    soft = np.random.default_rng(0).standard_normal((50, 1024), dtype=np.float32) * 0.02
    name = "one FE at RoBERTa-Large's shape, l = 50, 32 pairs"
    yield _row(name, model, batch, soft, bar=1.3, repeats=2)


def pairs_of_sentences() -> Batch:
    """Pairs of real sentences, `<s> one? <mask>, two </s>`, in the tokens of a like vocabulary."""
    tokenizer = causal_model().tokenizer
    task = pfes.load_task(TASK, shots=32)
    texts = [example.fields["text"] for example in task.train]
    rows, answers = [], []
    for left, right in zip(texts[::2], texts[1::2], strict=True):
        first, second = (tokenizer(text)["input_ids"] for text in (left, right))
        rows.append((0, *first, 50264, *second, 2))
        answers.append(len(first) + 1)
    labels = np.zeros(len(rows), dtype=np.int64)
    return Batch(tuple(rows), tuple(answers), (100, 200), labels)
