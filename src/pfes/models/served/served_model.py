"""A model behind vLLM's completions: only its tokenizer and its input embedding are here."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from pfes.config import PATIENCE, SERVED, RunConfig
from pfes.contract import Batch, Family, Floats, LanguageModel
from pfes.errors import PfesError, SettingError
from pfes.models.served.client import Client, RefusedError, Server, TryAgainError
from pfes.models.served.daemon_pool import DaemonPool
from pfes.models.served.in_order import in_order
from pfes.models.served.input_embedding import load_embedding
from pfes.models.served.wire import (
    Check,
    encode_embeddings,
    listed_words,
    read_answers,
    word_limit,
)
from pfes.models.source import find_model
from pfes.tasks.encode import verbalizer_tokens
from pfes.tasks.spec import TaskSpec

ROWS = 32  # sequences in one request
IN_FLIGHT = (1, 2, 4, 8)  # requests at once, to choose from
ENOUGH = 1.05  # times as fast, for twice as many requests at once to be worth it
AGREE = 0.05  # between log-probabilities of the same tokens, given as tokens and as embeddings
SENTENCE = "The weather is fine today, and the sky is"
START = (
    "python -m vllm.entrypoints.openai.api_server --model … --enable-prompt-embeds "
    "--max-logprobs 128"
)
WORDS = 128  # named words in one request, at most: vLLM's own limit, whatever its options are
LISTED = 512  # words in a list of the likeliest answers, where a server's options allow so many
Answers = TypeVar("Answers")
Part = TypeVar("Part")

log = logging.getLogger(__name__)


class ServedModel(LanguageModel):
    """A causal language model that a vLLM server answers for, or several (`urls`, with commas).

    A sequence travels as embeddings, its answer comes back as log-probabilities of the verbalizer
    words. What the server does not tell, such as ranks, is not made up.
    """

    family: Family = "causal"

    def __init__(
        self,
        urls: str,
        served_name: str | None = None,
        tokenizer: str | None = None,
        patience: float = PATIENCE,
        trust_remote_code: bool = False,
    ) -> None:
        if tokenizer is None:
            raise SettingError(
                "tokenizer",
                "a served model needs a folder or Hub name to read its tokenizer and its input "
                "embedding from",
            )
        self.name = SERVED + urls
        self.source = find_model(tokenizer, trust_remote_code)
        self.client = Client([Server(url) for url in urls.split(",")], patience)
        self.served_name = served_name
        self.tokenizer = self.source.tokenizer
        self._embedding = load_embedding(self.source)
        self.width = int(self._embedding.shape[1])
        self.max_length = int(self.tokenizer.model_max_length)
        self.in_flight = 1
        self._words_at_once = WORDS
        self._listed = min(LISTED, len(self._embedding))
        self._pool = DaemonPool(max(IN_FLIGHT) * len(self.client.servers))

    @property
    def vocabulary(self) -> int:
        return min(len(self.tokenizer), len(self._embedding))

    def embed(self, tokens: Sequence[int]) -> Floats:
        return np.asarray(self._embedding[list(tokens)])

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        if prompts.shape[2] != self.width:
            raise ValueError(f"prompts are {prompts.shape[2]} wide, the embedding is {self.width}")
        pairs = [(c, e) for c in range(len(prompts)) for e in range(len(batch))]
        parts = [pairs[start : start + ROWS] for start in range(0, len(pairs), ROWS)]

        def ask(part: list[tuple[int, int]]) -> list[list[float]]:
            rows = [encode_embeddings(self._row(prompts[c], batch, e)) for c, e in part]
            return self._ask({"prompt_embeds": rows}, len(rows), batch.words)

        answers = [row for rows in self._in_order(ask, parts) for row in rows]
        shape = (len(prompts), len(batch), len(batch.words))
        return np.array(answers, dtype=np.float32).reshape(shape)

    def likely_answers(
        self, prompt: Floats, batch: Batch, count: int, in_parts: bool = False
    ) -> tuple[list[int], Floats]:
        """Return the most probable answers among those that the server lists for each example."""

        def ask(part: range) -> list[dict[int, float]]:
            rows = [encode_embeddings(self._row(prompt, batch, example)) for example in part]
            return self._ask_lists({"prompt_embeds": rows}, len(rows))

        examples = range(len(batch))
        parts = [examples[start : start + ROWS] for start in examples[::ROWS]]
        shares: dict[int, float] = {}
        for listed in (row for rows in self._in_order(ask, parts) for row in rows):
            for token, value in listed.items():
                shares[token] = shares.get(token, 0.0) + math.exp(value)
        likely = sorted(shares, key=lambda token: (-shares[token], token))
        others = [t for t in likely if t not in batch.words and t < self.vocabulary]
        if not in_parts:
            count = max(0, min(count, self._words_at_once - len(batch.words)))
        tokens = others[:count]
        return tokens, self.logprobs(prompt[None], batch.with_words(tokens))[0]

    def _ask_lists(self, what: dict[str, Any], count: int) -> list[dict[int, float]]:
        """Ask for the likeliest words behind each of `count` sequences."""
        while True:
            wanted = self._listed
            body = what | self._question(wanted)
            try:
                return self.client.ask(
                    "/completions", body, lambda answer: listed_words(answer, count)
                )
            except RefusedError as error:
                self._lower_limit(error, wanted)

    def _lower_limit(self, error: RefusedError, wanted: int) -> None:
        """Ask for fewer words at a time from here on, if `wanted` is too many; else raise."""
        limit = word_limit(error)
        if limit is None or not 0 < limit < wanted:
            raise error
        if limit < self._words_at_once:
            log.warning(
                "%s answers for %d words at a time: start it with --max-logprobs %d for more",
                self.client.url, limit, WORDS,
            )  # fmt: skip
        self._words_at_once = min(self._words_at_once, limit)
        self._listed = min(self._listed, limit)

    def _question(self, words: int) -> dict[str, Any]:
        """Return the part of a request that asks for one answer and its likeliest words."""
        return {
            "model": self.served_name,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": words,
            "return_tokens_as_token_ids": True,
        }

    def _row(self, prompt: Floats, batch: Batch, example: int) -> Floats:
        text = self.embed(batch.token_ids[example])
        if batch.placement == "prefix":
            return np.concatenate([prompt, text])
        return np.concatenate([text, prompt, self.embed(batch.ending(len(prompt)))])

    def _in_order(self, ask: Callable[[Part], Answers], parts: list[Part]) -> Iterator[Answers]:
        return in_order(self._pool, self.client, lambda: self.in_flight, ask, parts)

    def _ask(
        self,
        what: dict[str, Any],
        count: int,
        words: Sequence[int],
        client: Client | None = None,
    ) -> list[list[float]]:
        """Ask for the log-probabilities of words behind each of `count` sequences.

        More words than a server answers for at a time are asked for in several requests.
        """
        client = client or self.client
        rows: list[list[float]] = [[] for _ in range(count)]
        asked = 0
        while asked < len(words):
            part = words[asked : asked + self._words_at_once]
            try:
                answers = self._ask_at_once(what, count, part, client)
            except RefusedError as error:
                self._lower_limit(error, len(part))
                continue
            rows = [row + more for row, more in zip(rows, answers, strict=True)]
            asked += len(part)
        return rows

    def _ask_at_once(
        self, what: dict[str, Any], count: int, words: Sequence[int], client: Client
    ) -> list[list[float]]:
        body = what | self._question(len(words)) | {"logprob_token_ids": list(words)}
        return client.ask("/completions", body, lambda answer: read_answers(answer, count, words))

    def checks(self) -> Iterator[Check]:
        """Go through all that a search needs of every server; a failure says what to change."""
        for server in self.client.servers:
            yield from self._check_offer(server)
            yield from self._check_answers(Client([server], self.client.patience))

    def _check_offer(self, server: Server) -> Iterator[Check]:
        try:
            offered = server.get("/models")["data"]
            served = {str(model["id"]): model for model in offered}
        except (KeyError, TypeError, TryAgainError):
            raise PfesError(f"{server.url} is not an OpenAI-like server") from None
        except RefusedError as error:
            raise PfesError(f"{error}; the address ends with /v1") from None
        except PfesError as error:
            raise PfesError(f"{error}: start it with {START}") from None
        yield Check("server", f"answers at {server.url}")
        if self.served_name is None and len(served) == 1:
            self.served_name = next(iter(served))
        if self.served_name not in served:
            named = ", ".join(served) or "nothing"
            raise SettingError("served_name", f"no {self.served_name}: {server.url} has {named}")
        longest = served[self.served_name].get("max_model_len")
        if longest is not None:
            self.max_length = min(self.max_length, int(longest) - 1)  # one is for the answer
        yield Check("model", f"{self.served_name}, {self.max_length} tokens")

    def _check_answers(self, client: Client) -> Iterator[Check]:
        tokens = self.tokenizer(SENTENCE, add_special_tokens=False)["input_ids"]
        words = sorted(set(tokens))[:2]
        plain = self._ask({"prompt": [tokens]}, 1, words, client)[0]
        if not all(math.isfinite(value) and value <= 0 for value in plain):
            raise PfesError(f"{client.url} answers {plain}, which are no log-probabilities")
        yield Check("log-probabilities", "of the words that are asked for")
        rows = [encode_embeddings(self.embed(tokens))]
        try:
            soft = self._ask({"prompt_embeds": rows}, 1, words, client)[0]
        except RefusedError as error:
            raise PfesError(self._refusal(str(error))) from None
        yield Check("embeddings", f"accepted, {self.width} wide")
        gap = max(abs(a - b) for a, b in zip(plain, soft, strict=True))
        if not gap <= AGREE:
            raise PfesError(
                f"the server's answers to one sentence differ by {gap:.2g} between embeddings and "
                f"tokens: the embedding of --tokenizer {self.source.name} is not that of "
                f"{self.served_name}"
            )
        yield Check("one sentence", f"same answers as tokens and as embeddings (within {gap:.1e})")

    def _refusal(self, message: str) -> str:
        """Say what to do about a server that does not take our embeddings."""
        if "hidden_size" in message:
            return (
                f"--tokenizer {self.source.name}: its embedding is {self.width} wide, and the "
                f"served model's is not: {message}"
            )
        return f"{message}: start the server with --enable-prompt-embeds"

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> None:
        """Choose how many requests are sent at once: more, as long as that is faster.

        The server itself decides how many tokens a forward pass has.
        """
        requests = -(-candidates * len(batch) // ROWS)
        best, servers = 0.0, len(self.client.servers)
        for count in (
            servers * each for each in IN_FLIGHT if each == 1 or each * servers <= requests
        ):
            prompts = np.repeat(prompt[None], -(-count * ROWS // len(batch)), axis=0)
            before, self.in_flight = self.in_flight, count
            began = time.perf_counter()
            self.logprobs(prompts, batch)
            speed = len(prompts) / (time.perf_counter() - began)
            if speed < ENOUGH * best:
                self.in_flight = before
                return
            best = speed


def connect(config: RunConfig, spec: TaskSpec | None) -> ServedModel:
    """Reach a served model, and check that its server can do all that a search needs."""
    model = ServedModel(
        config.model.removeprefix(SERVED),
        config.served_name,
        config.tokenizer,
        config.patience,
        config.trust_remote_code,
    )
    if spec is not None:
        verbalizer_tokens(spec, model.tokenizer)
    for _ in model.checks():
        pass
    return model
