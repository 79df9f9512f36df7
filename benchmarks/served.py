"""The same evaluation by a vLLM server on this machine, given the same sequences."""

import base64
import io
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.evaluation import MODEL, REPEATS, TOLERANCE, causal_model, objective, prompt
from benchmarks.plain import largest_difference
from benchmarks.timing import Row, in_turns
from pfes.models.load import model_source

PYTHON = Path(__file__).parents[1] / ".venv-vllm/bin/python"
PATIENCE = 300  # seconds for the server to start
BARS = {50: 1.6, 10: 1.0}


def against_vllm() -> Iterator[Row]:
    python = Path(os.environ.get("PFES_VLLM_PYTHON", PYTHON))
    name = "one FE, {}, l = {}, 32 sentences, prefix"
    if not python.exists():
        for length, bar in BARS.items():
            detail = "needs a vLLM environment: make vllm"
            yield Row(name.format(MODEL, length), "vLLM here", None, bar, "at least", detail)
        return
    with _server(python) as url:
        for length, bar in BARS.items():
            yield _row(url, name.format(MODEL, length), length, bar)


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
    answer = _post(f"{url}/v1/completions", body)
    found = [choice["logprobs"]["top_logprobs"][0] for choice in answer["choices"]]
    return np.array([[row[f"token_id:{word}"] for word in words] for row in found])


def _post(url: str, body: dict[str, Any]) -> Any:
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@contextmanager
def _server(python: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", model_source(MODEL),
        "--served-model-name", MODEL, "--dtype", "float32", "--enable-prompt-embeds",
        "--enforce-eager", "--max-model-len", "512", "--host", "127.0.0.1", "--port", str(port),
        "--max-num-batched-tokens", "8192",
    ]  # fmt: skip
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    }  # fmt: skip
    log = Path(os.environ.get("PFES_VLLM_LOG", os.devnull)).open("w")  # noqa: SIM115
    process = subprocess.Popen(
        list(map(str, command)), env=os.environ | settings, stdout=log, stderr=log
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    for _ in range(PATIENCE):
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with code {process.returncode}: see PFES_VLLM_LOG")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"vLLM did not start within {PATIENCE} s")
