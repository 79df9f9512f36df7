"""A small server of text: completions and chats of a real, tiny model, with faults to order."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests import tiny
from tests.models.server import FakeServer, started

MARKS = {"system": "", "user": "\nQ: ", "assistant": "\nA: "}


def chat_text(messages: list[dict[str, str]]) -> str:
    """Put messages together as this server's chat template does."""
    return "".join(MARKS[m["role"]] + m["content"] for m in messages) + "\nA:"


class TextServer(FakeServer):
    """Takes text, and lists the likeliest tokens by their text."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(tiny.make_module("llama"), ["tiny"], port)
        self.tokenizer = tiny.make_tokenizer("causal")
        self.max_logprobs = 20
        self.longest = 257
        self.interfaces = ("completions", "chat")
        self.names_words = False  # as vLLM does
        self.seen: list[dict[str, Any]] = []  # bodies that were answered

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        chat = "messages" in body
        if ("chat" if chat else "completions") not in self.interfaces:
            return 404, {"detail": "Not Found"}
        if body["model"] not in self.names:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        count = body["top_logprobs"] if chat else body["logprobs"]
        if count > self.max_logprobs:
            return 400, {"error": {"message": f"logprobs must be at most {self.max_logprobs}"}}
        text = chat_text(body["messages"]) if chat else body["prompt"]
        tokens = self.tokenizer(text)["input_ids"]
        if len(tokens) + 1 > self.longest:
            return 400, {"error": {"message": f"longer than {self.longest} tokens"}}
        with torch.inference_mode(), self.lock:
            values = self.module(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
            self.seen.append(body)
        likely = values[: len(self.tokenizer)].topk(count).indices.tolist()
        usage = {"prompt_tokens": len(tokens), "total_tokens": len(tokens) + 1}
        if chat:
            entries = [
                {"token": self.tokenizer.decode([t]), "logprob": float(values[t])} for t in likely
            ]
            logprobs: dict[str, Any] = {"content": [entries[0] | {"top_logprobs": entries}]}
        elif self.names_words and "logprob_token_ids" in body:
            named = body["logprob_token_ids"]
            logprobs = {"top_logprobs": [{f"token_id:{t}": float(values[t]) for t in named}]}
        else:
            rows = {self.tokenizer.decode([t]): float(values[t]) for t in reversed(likely)}
            logprobs = {"top_logprobs": [rows]}
        return 200, {"choices": [{"index": 0, "logprobs": logprobs}], "usage": usage}


@contextmanager
def serving_text(port: int = 0) -> Iterator[TextServer]:
    with TextServer(port) as server, started(server):
        yield server
