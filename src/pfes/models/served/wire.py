"""What goes to a server and what comes back: embeddings, answers, refusals."""

import base64
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfes.contract import Floats
from pfes.models.served.client import AnswerError, RefusedError


@dataclass(frozen=True)
class Check:
    """Something that a server must be able to do, and what was seen of it."""

    name: str
    seen: str


def read_answers(answer: Any, count: int, words: Sequence[int]) -> list[list[float]]:
    """Return the log-probabilities of words behind each of `count` sequences."""
    answers = _top_words(answer, count)
    missing = [word for row in answers for word in words if f"token_id:{word}" not in row]
    if missing:
        raise AnswerError(
            f"no log-probability of token {missing[0]}: this needs a vLLM that knows "
            "logprob_token_ids"
        )
    return [[_number(row[f"token_id:{word}"]) for word in words] for row in answers]


def listed_words(answer: Any, count: int) -> list[dict[int, float]]:
    """Return the tokens listed behind each of `count` sequences, with their log-probabilities."""
    try:
        return [
            {int(name.removeprefix("token_id:")): float(value) for name, value in row.items()}
            for row in _top_words(answer, count)
        ]
    except (TypeError, ValueError):
        raise AnswerError("a list of words that are no tokens with log-probabilities") from None


def _top_words(answer: Any, count: int) -> list[dict[str, Any]]:
    """Return what is listed behind each of `count` sequences, in their order."""
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        places = [choice["index"] for choice in choices]
        rows = [dict(choice["logprobs"]["top_logprobs"][0]) for choice in choices]
    except (KeyError, TypeError, IndexError, ValueError):
        raise AnswerError("an answer without log-probabilities") from None
    if places != list(range(count)):
        raise AnswerError(f"{len(choices)} answers to {count} sequences")
    return rows


def _number(value: Any) -> float:
    """Return a log-probability; anything else becomes NaN, which counts as worst everywhere."""
    return float(value) if isinstance(value, int | float) else math.nan


def encode_embeddings(states: Floats) -> str:
    """Return embeddings `(tokens, width)` as vLLM takes them."""
    import torch

    buffer = io.BytesIO()
    torch.save(torch.from_numpy(np.ascontiguousarray(states)), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def word_limit(error: RefusedError) -> int | None:
    """Return for how many words a server answers, where that is why it refused."""
    allowed = re.search(r"max allowed: (\d+)", str(error))
    return None if allowed is None else int(allowed[1])
