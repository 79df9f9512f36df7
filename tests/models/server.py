"""A small server that answers as vLLM's completions do, with faults to order."""

import base64
import io
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

NAMED = 128  # words in one request, as in vLLM
LONGEST = 128  # tokens, with the answer's
Fault = Callable[["Handler", dict[str, Any]], bool]  # returns whether it has answered


class Handler(BaseHTTPRequestHandler):
    """One request; `server` is a `FakeServer`."""

    server: "FakeServer"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.headers_seen.append(dict(self.headers))
        if not self._allowed():
            return
        if self.path != "/v1/models":
            self.reply(404, {"detail": "Not Found"})
            return
        data = [{"id": name, "max_model_len": self.server.longest} for name in self.server.names]
        self.reply(200, {"object": "list", "data": data})

    def do_POST(self) -> None:
        self.server.headers_seen.append(dict(self.headers))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._allowed():
            return
        with self.server.lock:
            self.server.asked += 1
            fault = self.server.faults.popleft() if self.server.faults else None
        if fault is not None and fault(self, body):
            return
        self.reply(*self.server.complete(body))

    def _allowed(self) -> bool:
        wanted = self.server.key
        if wanted is None or self.headers.get("Authorization") == f"Bearer {wanted}":
            return True
        given = self.headers.get("Authorization")
        self.reply(401, {"error": {"message": f"bad key {given}"}})
        return False

    def reply(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


class FakeServer(ThreadingHTTPServer):
    """Serves a real, tiny model."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing where a client has gone away before its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def __init__(self, module: Any, names: list[str], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.module = module
        self.names = names
        self.embeds = True
        self.max_logprobs = 20  # vLLM's default
        self.longest = LONGEST
        self.key: str | None = None
        self.faults: deque[Fault] = deque()
        self.headers_seen: list[dict[str, str]] = []
        self.asked = 0
        self.lengths: list[int] = []  # of the embeddings that came
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Answer a completion as vLLM does."""
        if body["model"] not in self.names:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        embedding = self.module.get_input_embeddings()
        if "prompt_embeds" in body:
            if not self.embeds:
                words = "You must set `--enable-prompt-embeds` to input `prompt_embeds`."
                return 400, {"error": {"message": words}}
            given = body["prompt_embeds"]
            sent = [given] if isinstance(given, str) else given
            raw = [io.BytesIO(base64.b64decode(row)) for row in sent]
            rows = [torch.load(row, weights_only=True) for row in raw]
            self.lengths += [len(row) for row in rows]
            width = embedding.weight.shape[1]
            if rows[0].shape[1] != width:
                words = f"hidden_size {rows[0].shape[1]} does not match the model's {width}"
                return 400, {"error": {"message": words}}
        else:
            rows = [embedding(torch.tensor(tokens)) for tokens in body["prompt"]]
        if any(len(row) + body["max_tokens"] > self.longest for row in rows):
            words = f"longer than the maximum model length of {self.longest}"
            return 400, {"error": {"message": words}}
        if body["logprobs"] > self.max_logprobs:
            words = f"Requested sample logprobs of {body['logprobs']}, which is greater than max "
            words += f"allowed: {self.max_logprobs}"
            return 400, {"error": {"message": words}}
        if len(body.get("logprob_token_ids", ())) > NAMED:
            words = f"Requested logprob_token_ids of length {len(body['logprob_token_ids'])}, "
            words += f"which is greater than max allowed: {NAMED}"
            return 400, {"error": {"message": words}}
        choices = []
        with torch.inference_mode(), self.lock:
            for index, row in enumerate(rows):
                logits = self.module(inputs_embeds=row[None]).logits[0, -1]
                values = logits.log_softmax(-1)
                tokens = body.get("logprob_token_ids", values.topk(body["logprobs"]).indices)
                found = {f"token_id:{int(t)}": float(values[int(t)]) for t in tokens}
                choices.append({"index": index, "logprobs": {"top_logprobs": [found]}})
        return 200, {"choices": choices}


@contextmanager
def serving(module: Any, names: list[str], port: int = 0) -> Iterator[FakeServer]:
    with FakeServer(module, names, port) as server, started(server):
        yield server


@contextmanager
def started(server: FakeServer) -> Iterator[None]:
    """Have a server answer in a thread of its own."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def status(code: int, **headers: str) -> Fault:
    def fault(handler: Handler, _: dict[str, Any]) -> bool:
        handler.reply(code, {"error": {"message": f"fault {code}"}}, headers)
        return True

    return fault


def none(*_: Any) -> bool:
    """Let a request pass."""
    return False


def drop(handler: Handler, _: dict[str, Any]) -> bool:
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.close()
    return True


def truncated(handler: Handler, body: dict[str, Any]) -> bool:
    _, content = handler.server.complete(body)
    handler.reply(200, json.dumps(content)[:-20])
    return True


def delay(handler: Handler, _: dict[str, Any]) -> bool:
    time.sleep(0.5)
    return False


def changed(change: Callable[[list[dict[str, Any]]], None]) -> Fault:
    """Answer, with the choices changed."""

    def fault(handler: Handler, body: dict[str, Any]) -> bool:
        code, content = handler.server.complete(body)
        change(content["choices"])
        handler.reply(code, content)
        return True

    return fault


def fewer(choices: list[dict[str, Any]]) -> None:
    choices.pop()


def without_a_word(choices: list[dict[str, Any]]) -> None:
    choices[0]["logprobs"]["top_logprobs"][0].popitem()


def not_a_number(choices: list[dict[str, Any]]) -> None:
    found = choices[0]["logprobs"]["top_logprobs"][0]
    for name in found:
        found[name] = float("nan")


def shuffled(choices: list[dict[str, Any]]) -> None:
    choices.reverse()
