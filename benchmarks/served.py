"""The same evaluation by a vLLM server on this machine, given the same sequences."""

import base64
import io
import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from benchmarks.evaluation import MODEL, REPEATS, TOLERANCE, causal_model, objective, prompt
from benchmarks.plain import largest_difference
from benchmarks.timing import Row, in_turns
from benchmarks.vllm_server import VllmServer, server_python
from pfes.models.served.served_model import ServedModel

BARS = {50: 1.6, 10: 1.0}
LENGTH, CANDIDATES = 10, 8  # of the client's row


def against_vllm() -> Iterator[Row]:
    name = "one FE, {}, l = {}, 32 sentences, prefix"
    if server_python() is None:
        for length, bar in BARS.items():
            detail = "needs a vLLM environment: make vllm"
            yield Row(name.format(MODEL, length), "vLLM here", None, bar, "at least", detail)
        return
    with VllmServer(MODEL) as server:
        for length, bar in BARS.items():
            yield _row(server.url, name.format(MODEL, length), length, bar)
        yield _client_row(server.url)


def _row(url: str, name: str, length: int, bar: float) -> Row:
    model, batch, soft = causal_model(), objective(length).batch, prompt(length)
    with torch.inference_mode():
        embedding = model.module.get_input_embeddings()
        texts = [embedding(torch.tensor(row)) for row in batch.token_ids]
    rows = [_encode(torch.cat([torch.from_numpy(soft), text])) for text in texts]

    def ask() -> np.ndarray:
        # encoding is left out: a client would do it while the server computes
        return _ask(url, rows, batch.words)

    ours, theirs = in_turns(REPEATS, lambda: model.logprobs(soft[None], batch), ask)
    found = model.logprobs(soft[None], batch)[0]
    return Row(
        name, "vLLM here, as prompt embeds", theirs / ours, bar, "at least",
        f"{ours:.2f} s, vLLM {theirs:.2f} s", largest_difference(found, ask()), TOLERANCE,
    )  # fmt: skip


def _client_row(url: str) -> Row:
    """Return the speed of our client, beside a load that keeps the server full."""
    whole = objective(LENGTH)
    model = ServedModel(url, tokenizer=MODEL)
    for _ in model.checks():
        pass
    soft = np.stack([prompt(LENGTH)] * CANDIDATES)
    model.choose_batch_tokens(soft[0], whole.batch, CANDIDATES)
    texts = [model.embed(row) for row in whole.batch.token_ids]
    rows = [_encode(torch.from_numpy(np.concatenate([soft[0], text]))) for text in texts]

    def saturate() -> None:
        """Send the same sequences, encoded before, with as many requests as there are."""
        with ThreadPoolExecutor(CANDIDATES) as pool:
            list(pool.map(lambda _: _ask(url, rows, whole.batch.words), range(CANDIDATES)))

    ours, theirs = in_turns(REPEATS, lambda: model.logprobs(soft, whole.batch), saturate)
    return Row(
        f"FE per second over HTTP, l = {LENGTH}, {CANDIDATES} candidates", "saturating load",
        theirs / ours, 0.9, "at least",
        f"{CANDIDATES / ours:.2f} FE/s, {CANDIDATES / theirs:.2f} FE/s; "
        f"{model.in_flight} requests at once",
    )  # fmt: skip


def _encode(states: torch.Tensor) -> str:
    buffer = io.BytesIO()
    torch.save(states.clone(), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _ask(url: str, rows: list[str], words: tuple[int, ...]) -> np.ndarray:
    body = {
        "model": MODEL, "prompt_embeds": rows, "max_tokens": 1, "temperature": 0,
        "logprobs": len(words), "logprob_token_ids": list(words),
        "return_tokens_as_token_ids": True,
    }  # fmt: skip
    answer = _post(f"{url}/completions", body)
    found = [choice["logprobs"]["top_logprobs"][0] for choice in answer["choices"]]
    return np.array([[row[f"token_id:{word}"] for word in words] for row in found])


def _post(url: str, body: dict[str, Any]) -> Any:
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)
