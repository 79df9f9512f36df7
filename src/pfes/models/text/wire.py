"""What goes to a server that takes text, and the list of likely answers that comes back."""

import math
from collections.abc import Sequence
from typing import Any

from pfes.contract import Written
from pfes.models.served.client import AnswerError
from pfes.tasks.turns import messages

PATHS = {"completions": "/completions", "chat": "/chat/completions"}
TOKEN = "token_id:"  # how vLLM's name of a word begins that was asked for by its token
NAMED = "logprob_token_ids"  # vLLM's, for such words
LEAST = 1e-9  # probability that is left for words that are not listed, where a list rounds to 1

Listed = dict[str, float]  # log-probabilities of likely answers, by their text


def completion(prompt: str, written: Written, count: int) -> dict[str, Any]:
    """Return what a request for one token of a completion consists of."""
    text = f"{prompt}\n{written.text}" if prompt else written.text
    return {"prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": count}


def chat(prompt: str, written: Written, count: int) -> dict[str, Any]:
    """Return the same for a chat, where a prompt stands before the instruction."""
    told, *others = written.turns
    turns = (f"{prompt}\n{told}" if prompt else told, *others)
    ask = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": count}
    return {"messages": messages(turns)} | ask


QUESTIONS = {"completions": completion, "chat": chat}


def listed_answers(answer: Any, stripped: bool) -> Listed:
    """Return the likely first tokens of an answer.

    Old completions have an object of them, chats and newer servers a list. Of tokens with the same
    text, the likeliest counts.
    """
    try:
        (choice,) = answer["choices"]
        logprobs = choice["logprobs"]
        if logprobs.get("content"):
            first = logprobs["content"][0]
            pairs = [(each["token"], each["logprob"]) for each in (first, *first["top_logprobs"])]
        else:
            pairs = list(logprobs["top_logprobs"][0].items())
        found: Listed = {}
        for token, value in pairs:
            text = str(token).strip() if stripped else str(token)
            if not float(value) <= 1e-3:  # NaN, too
                raise ValueError
            found[text] = max(float(value), found.get(text, -math.inf))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        raise AnswerError("an answer without log-probabilities") from None
    if not found:
        raise AnswerError("an answer without log-probabilities")
    return found


def bound(listed: Listed) -> float:
    """Return the most that a word can have that is not listed.

    That is no more than the least likely word of the list, and no more than the list leaves over.
    """
    left = 1.0 - sum(map(math.exp, listed.values()))
    return min(*listed.values(), math.log(max(left, LEAST)))


def named_tokens(tokens: Sequence[int]) -> dict[str, Any]:
    """Return what makes a vLLM server answer for these tokens, likely or not."""
    return {
        "logprobs": len(tokens),
        NAMED: list(tokens),
        "return_tokens_as_token_ids": True,
    }
