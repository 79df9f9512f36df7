"""Label texts through a vLLM server: python client.py URL MODEL TEXT…

The server is started with --enable-prompt-embeds. MODEL is the folder or Hub name of the model's
tokenizer and safetensors files, of which only the input embedding is read. A task with several text
columns takes as many texts for each answer. PFES_API_KEY is sent as the server's key.
"""

import base64
import io
import json
import os
import sys
import urllib.request
from pathlib import Path
from string import Formatter
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoTokenizer
from transformers.utils import cached_file

SINGLE = "model.safetensors"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answers come from the server that was named, and the key goes nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def main(url: str, model: str, *texts: str) -> None:
    with safe_open(Path(__file__).with_name("prompt.safetensors"), "pt") as file:
        prompt = file.get_tensor("prompt")
        about = json.loads(file.metadata()["plain"])
    tokenizer = AutoTokenizer.from_pretrained(model)
    embedding = read_embedding(model, **about["embedding"])
    template, columns = about["task"]["templates"]["causal"], text_columns(about)
    shown = "".join(about["task"]["demonstrations"])
    words = {one_token(tokenizer, w): label for label, w in about["task"]["verbalizers"].items()}
    served = about["config"].get("served_name") or ask(f"{url}/models")["data"][0]["id"]
    for start in range(0, len(texts), len(columns)):
        fields = dict(zip(columns, texts[start:], strict=False))
        ids = tokenizer(shown + template.format_map(fields))["input_ids"]
        parts = [prompt, embedding[ids]]
        rows = torch.cat(parts if about["placement"] == "prefix" else parts[::-1])
        body = {
            "model": served,
            "prompt_embeds": [encode(rows)],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": len(words),
            "logprob_token_ids": list(words),
            "return_tokens_as_token_ids": True,
        }
        found = ask(f"{url}/completions", body)["choices"][0]["logprobs"]["top_logprobs"][0]
        best = max(words, key=lambda token: found[f"token_id:{token}"])
        print(f"{words[best]}\t{' | '.join(fields.values())}")


def text_columns(about: dict[str, Any]) -> list[str]:
    """Return the columns that the templates use, in their order."""
    parts = (p for text in about["task"]["templates"].values() for p in Formatter().parse(text))
    return [
        name for name in dict.fromkeys(name for _, name, _, _ in parts if name) if name != "mask"
    ]


def read_embedding(model: str, tensor: str, scale: float) -> torch.Tensor:
    """Read one tensor of a model in one file or in several."""
    index = cached_file(model, f"{SINGLE}.index.json", _raise_exceptions_for_missing_entries=False)
    places = {} if index is None else json.loads(Path(index).read_text())["weight_map"]
    with safe_open(cached_file(model, places.get(tensor, SINGLE)), "pt") as file:
        embedding: torch.Tensor = file.get_tensor(tensor).float() * scale
        return embedding


def one_token(tokenizer: Any, word: str) -> int:
    """Return a word as one token, with a leading space where there is such a token."""
    for text in (f" {word.strip()}", word.strip()):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    raise SystemExit(f"{word!r} is not one token of this model")


def encode(rows: torch.Tensor) -> str:
    buffer = io.BytesIO()
    torch.save(rows.contiguous(), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    head = {"Content-Type": "application/json"}
    if key := os.environ.get("PFES_API_KEY"):
        head["Authorization"] = f"Bearer {key}"
    content = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(NoRedirect)
    with opener.open(urllib.request.Request(url, content, head)) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
