"""A model behind an API that takes text and lists a few likely answers."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.config import KEY, PATIENCE, TEXT_ONLY, RunConfig
from pfes.contract import Batch, Family, Floats, Interface, LanguageModel, Written
from pfes.errors import PfesError, SettingError
from pfes.models.served.client import AnswerError, Client, RefusedError, Server, TryAgainError
from pfes.models.served.daemon_pool import DaemonPool
from pfes.models.served.in_order import in_order
from pfes.models.served.wire import Check
from pfes.models.source import find_model
from pfes.models.text.answer_store import AnswerStore
from pfes.models.text.pace import Pace
from pfes.models.text.pieces import Pieces
from pfes.models.text.spending import Spending
from pfes.models.text.wire import (
    PATHS,
    QUESTIONS,
    TOKEN,
    Listed,
    bound,
    listed_answers,
    named_tokens,
)
from pfes.tasks.encode import verbalizer_tokens
from pfes.tasks.spec import TaskSpec
from pfes.tasks.turns import turns

WIDTH = 128  # bytes of text for each piece of a prompt, with zeros behind it
SENTENCE = "The weather is fine today, and the sky is"
ONE_WORD = "Answer with one word."
HELLO = Written(SENTENCE, (ONE_WORD, "Is water wet, yes or no?"))
COUNTS = (128, 50, 20, 10, 5, 1)  # words of a list that are asked for, until a server gives them
TOO_MANY = (400, 422)  # how servers refuse a list that is too long for them
FORBIDDEN = (401, 403)
LENGTH = 4096  # tokens that a model takes, where neither server nor tokenizer says
LONGEST_WORD = 2  # tokens that a word has, at most on average, where no tokenizer says
USUAL_WORD = 1.3
CHAT_MARKS = 64  # tokens that a chat's own marks may take
LISTED = " (listed)"  # behind a word: whether an answer lists it, as a piece of its own
IS_LISTED, IS_NOT = 0.0, -1.0


@dataclass(frozen=True)
class Offer:
    """What a server was seen to be able to do."""

    interface: Interface
    listed: int  # words of a list, at most
    names: bool  # whether it answers for words that are named, as vLLM does


class TextModel(LanguageModel):
    """A causal model behind a server that completes text or chats.

    One request has one text and asks for one token; the answer lists the likeliest ones. A word
    that is not listed gets the most that it can have (`wire.bound`), and that it is not listed is
    an answer of its own. A prompt is text, which `embed` spells in bytes. Every answer is kept in
    `store`, so nothing is asked twice.
    """

    family: Family = "causal"
    takes_embeddings = False
    width = WIDTH
    vocabulary = 0

    def __init__(
        self,
        urls: str,
        served_name: str | None = None,
        tokenizer: str | None = None,
        interface: Interface | None = None,
        *,
        key_variable: str | None = None,
        patience: float = PATIENCE,
        trust_remote_code: bool = False,
        spending: Spending | None = None,
        store: AnswerStore | None = None,
    ) -> None:
        self.name = TEXT_ONLY + urls
        self.served_name = served_name
        source = None if tokenizer is None else find_model(tokenizer, trust_remote_code)
        self.tokenizer = Pieces(None if source is None else source.tokenizer)
        longest = LENGTH if source is None else int(source.tokenizer.model_max_length)
        self.max_length = min(longest, 10**6)
        self.spending = spending or Spending()
        servers = [Server(url, key_variable or KEY) for url in urls.split(",")]
        self.client = Client(servers, patience, self.spending)
        self.store = store or AnswerStore()
        self.pace = Pace()
        self._known = source is not None
        self.tokens_of_a_piece = 1.0 if self._known else USUAL_WORD
        self._pool = DaemonPool(self.pace.most)
        self.interface = interface
        self._offer: Offer | None = None
        self._guard, self._asking = Lock(), dict[str, Lock]()

    @property
    def sent(self) -> str:  # type: ignore[override]
        return str(self.spending)

    @property
    def offer(self) -> Offer:
        """What the server can do; `checks` finds out."""
        assert self._offer is not None, "the server was not asked what it can do"
        return self._offer

    def close(self) -> None:
        self.store.close()

    def embed(self, tokens: Sequence[int]) -> Floats:
        text = self.tokenizer.decode(tokens).encode()
        if len(text) > len(tokens) * WIDTH:
            raise PfesError(f"a prompt of {len(tokens)} pieces has {len(text)} bytes of text")
        spelled = np.zeros((len(tokens), WIDTH), dtype=np.float32)
        spelled.flat[: len(text)] = np.frombuffer(text, dtype=np.uint8)
        return spelled

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        words = [self.tokenizer.decode([word]) for word in batch.words]
        names = self._names(batch.words)
        values = [
            _values(listed, words)
            for listed in self._answers([spelled_text(p) for p in prompts], batch, names)
        ]
        shape = (len(prompts), len(batch), len(words))
        return np.array(values, dtype=np.float32).reshape(shape)

    def likely_answers(
        self, prompt: Floats, batch: Batch, count: int, in_parts: bool = False
    ) -> tuple[list[int], Floats]:
        """Return the most probable answers among those that the server lists for each example.

        Where it lists a word for some examples only, whether it does is a further answer; words
        alone are returned `in_parts`.
        """
        shares: dict[str, float] = {}
        seen: dict[str, int] = {}
        for listed in self._answers([spelled_text(prompt)], batch, None):
            for text, value in listed.items():
                shares[text] = shares.get(text, 0.0) + math.exp(value)
                seen[text] = seen.get(text, 0) + 1
        own = [self.tokenizer.decode([word]) for word in batch.words]
        others = [text for text in shares if text not in own]
        others.sort(key=lambda text: (-shares[text], text))
        words = others[:count]
        if self.offer.names:
            pieces = zip(words, self.tokenizer.learn(words), strict=True)
            words = [text for text, piece in pieces if self.tokenizer.token(piece) is not None]
        elif not in_parts and count:
            rare = (text for text in (*own, *words) if 0 < seen.get(text, 0) < len(batch))
            words += [text + LISTED for text in rare]
        tokens = self.tokenizer.learn(words)
        return tokens, self.logprobs(prompt[None], batch.with_words(tokens))[0]

    def request_for(
        self, prompt: Floats, spec: TaskSpec, words: Sequence[int]
    ) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
        """Return where and what a template is sent, its texts not filled in, and what is added.

        What is added names the words, where the server answers for those; each is a request.
        """
        template, shown = spec.template(self.family), "".join(spec.demonstrations)
        written = Written(shown + template, turns(spec, shown, template))
        body = self._question(spelled_text(prompt), written, self.offer)
        return PATHS[self.offer.interface], body, self._parts(list(self._names(words) or ()))

    def named(self, words: Sequence[int]) -> list[str] | None:
        """Return what the server calls these words, if it answers for words that are named."""
        names = self._names(words)
        return None if names is None else [f"{TOKEN}{token}" for token in names]

    def are_listed(self, prompt: Floats, batch: Batch) -> NDArray[np.bool_]:
        """Say which of the batch's words each answer lists, `(examples, words)`."""
        words = [self.tokenizer.decode([word]) for word in batch.words]
        names = self._names(batch.words)
        rows = self._answers([spelled_text(prompt)], batch, names)
        return np.array([[word in listed for word in words] for listed in rows], dtype=bool)

    def _names(self, words: Sequence[int]) -> dict[int, str] | None:
        """Return the words by their tokens, where the server answers for words that are named."""
        if not self.offer.names:
            return None
        tokens = {self.tokenizer.token(word): self.tokenizer.decode([word]) for word in words}
        named = {token: text for token, text in tokens.items() if token is not None}
        return named if len(named) == len(words) else None

    def _answers(
        self, prompts: Sequence[str], batch: Batch, names: dict[int, str] | None
    ) -> Iterator[Listed]:
        """Ask about all examples behind all prompts."""
        asked = self._parts(list(names or ()))
        parts: list[dict[str, Any]] = []
        for prompt in prompts:
            for written in batch.written:
                body = self._question(prompt, written, self.offer)
                parts += [body | part for part in asked]
        path = PATHS[self.offer.interface]
        self.pace.restart()

        def ask(body: dict[str, Any]) -> Listed:
            return self._ask(path, body, self.client)

        answers = in_order(self._pool, self.client, lambda: self.pace.at_once, ask, parts)
        for first in answers:
            if not names:
                yield first
                continue
            row = first
            for _ in asked[1:]:
                row = row | next(answers)
            yield {text: row.get(f"{TOKEN}{token}", math.nan) for token, text in names.items()}

    def _parts(self, tokens: list[int]) -> list[dict[str, Any]]:
        """Return what is added to a question, for each request that names some of the tokens."""
        size = self.offer.listed
        parts = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        return [named_tokens(part) for part in parts] or [{}]

    def _question(self, prompt: str, written: Written, offer: Offer) -> dict[str, Any]:
        question = QUESTIONS[offer.interface](prompt, written, offer.listed)
        return {"model": self.served_name} | question

    def _ask(self, path: str, body: dict[str, Any], client: Client, anew: bool = False) -> Listed:
        """Return an answer that is kept, or ask for it and keep it."""
        request = [self.name, path, body]
        with self._one_at_a_time(json.dumps(request)):  # the same text may be there twice
            kept = None if anew else self.store.get(request)
            if kept is not None:
                return dict(kept)
            stripped = path == PATHS["chat"]

            def read(answer: Any) -> Listed:
                listed = listed_answers(answer, stripped)
                usage = answer.get("usage") or {}
                self.spending.used(int(usage.get("total_tokens") or 0) or _tokens(body))
                return listed

            listed = client.ask(path, body, read)
            self.store.put(request, listed)
        self.pace.answered(client.slowed)
        return listed

    @contextmanager
    def _one_at_a_time(self, request: str) -> Iterator[None]:
        """Keep threads that ask the same apart: the second one finds the first one's answer."""
        with self._guard:
            lock = self._asking.setdefault(request, Lock())
        with lock:
            yield
        with self._guard:
            self._asking.pop(request, None)

    def answers_per_second(self, texts: Sequence[str]) -> float:
        """Measure how many requests a second are answered, at the pace that is found."""
        self.pace.restart()
        path, began = PATHS[self.offer.interface], time.perf_counter()
        bodies = [self._question("", Written(t, (ONE_WORD, t)), self.offer) for t in texts]

        def ask(body: dict[str, Any]) -> Listed:
            return self._ask(path, body, self.client, anew=True)

        answered = list(in_order(self._pool, self.client, lambda: self.pace.at_once, ask, bodies))
        return len(answered) / (time.perf_counter() - began)

    def find_offer(self, anew: bool = False) -> Iterator[Check]:
        """Find out what the server can do; what was found before is kept, unless asked `anew`."""
        yield from self._find_model()
        self._offer = offer = self._try_interfaces(anew)
        self.interface = offer.interface
        self.tokenizer.spaced = offer.interface != "chat"
        if offer.interface == "chat":
            self.max_length -= CHAT_MARKS
        yield Check("interface", offer.interface)
        yield Check("log-probabilities", f"of the {offer.listed} likeliest words of each answer")
        if offer.names:
            yield Check("words by name", "also of words that are asked for, likely or not")

    def _find_model(self) -> Iterator[Check]:
        server = self.client.servers[0]
        try:
            offered = server.get("/models")["data"]
            served = {str(model["id"]): model for model in offered}
        except (KeyError, TypeError, TryAgainError):
            raise PfesError(f"{server.url} is not an OpenAI-like server") from None
        except RefusedError as error:
            raise PfesError(f"{error}; the address usually ends with /v1") from None
        yield Check("server", f"answers at {server.url}")
        if self.served_name is None and len(served) == 1:
            self.served_name = next(iter(served))
        if self.served_name not in served:
            some = ", ".join(list(served)[:5]) or "nothing"
            named = some if len(served) <= 5 else f"{some} and {len(served) - 5} others"
            raise SettingError("served_name", f"no {self.served_name}: {server.url} has {named}")
        about = served[self.served_name]
        longest = about.get("max_model_len") or (about.get("meta") or {}).get("n_ctx")
        if longest is not None:
            self.max_length = min(self.max_length, int(longest) - 1)  # one is for the answer
        if not self._known:
            self.max_length //= LONGEST_WORD
        yield Check("model", self.served_name)

    def _try_interfaces(self, anew: bool) -> Offer:
        kinds: tuple[Interface, ...] = ("completions", "chat")
        tried = kinds if self.interface is None else (self.interface,)
        for kind in tried:
            request = ["offer", self.name, self.served_name, kind, self._known]
            kept = None if anew else self.store.get(request)
            if kept:
                return Offer(**kept)
            try:
                offer = self._try_interface(kind, anew)
                self.store.put(request, asdict(offer))
                return offer
            except (RefusedError, AnswerError) as error:
                if kind == tried[-1] or getattr(error, "status", 0) in FORBIDDEN:
                    raise
        raise AssertionError("the last one returns or raises")

    def _try_interface(self, kind: Interface, anew: bool) -> Offer:
        """Ask for fewer and fewer words until the server answers."""
        for count in COUNTS:
            offer = Offer(kind, count, False)
            body = self._question("", HELLO, offer)
            try:
                self._ask(PATHS[kind], body, self.client, anew)
            except RefusedError as error:
                if count == COUNTS[-1] or error.status not in TOO_MANY:
                    raise
                continue
            names = kind == "completions" and self._try_names(body, anew)
            return replace(offer, names=names)
        raise AssertionError("the last one returns or raises")

    def _try_names(self, body: dict[str, Any], anew: bool) -> bool:
        """Say whether the server answers for words that are named, and the tokenizer knows them."""
        tokens = [self.tokenizer.token(piece) for piece in self.tokenizer(SENTENCE)["input_ids"]]
        named = sorted({token for token in tokens if token is not None})[:2]
        if len(named) < 2:
            return False
        try:
            named_body = body | named_tokens(named)
            listed = self._ask(PATHS["completions"], named_body, self.client, anew)
        except (RefusedError, AnswerError):
            return False
        return all(f"{TOKEN}{token}" in listed for token in named)


def spelled_text(prompt: Floats) -> str:
    """Return the text that `TextModel.embed` has spelled."""
    letters = prompt.reshape(-1).astype(np.uint8)
    return letters[letters > 0].tobytes().decode(errors="replace").strip()


def _values(listed: Listed, words: Sequence[str]) -> list[float]:
    """Return the log-probability of each word, or the most that it can have."""
    most = bound(listed)
    return [
        (IS_LISTED if word.removesuffix(LISTED) in listed else IS_NOT)
        if word.endswith(LISTED)
        else listed.get(word, most)
        for word in words
    ]


def _tokens(body: dict[str, Any]) -> int:
    """Return about how many tokens a request has, where its answer does not say."""
    texts = [body["prompt"]] if "prompt" in body else [m["content"] for m in body["messages"]]
    return sum(len(text) for text in texts) // 4 + 1


def connect_text(config: RunConfig, spec: TaskSpec | None) -> TextModel:
    """Reach a model that takes text, and find out what its server can do."""
    model = TextModel(
        config.model.removeprefix(TEXT_ONLY),
        config.served_name,
        config.tokenizer,
        None if config.interface == "auto" else config.interface,
        key_variable=config.key_variable,
        patience=config.patience,
        trust_remote_code=config.trust_remote_code,
        spending=Spending(config.max_requests, config.max_tokens),
    )
    for _ in model.find_offer():
        pass
    if spec is not None:
        verbalizer_tokens(spec, model.tokenizer)
    return model
