"""A model behind an API that takes text and lists a few likely answers."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfes.config import PATIENCE, TEXT_ONLY, RunConfig
from pfes.contract import Batch, Family, Floats, Interface, LanguageModel, Written
from pfes.errors import PfesError
from pfes.models.served.wire import Check
from pfes.models.source import find_model
from pfes.models.text.answer_store import AnswerStore
from pfes.models.text.offer import SENTENCE, Offer, find_offer, find_served
from pfes.models.text.pieces import Pieces
from pfes.models.text.service import Question, Service
from pfes.models.text.spending import Spending
from pfes.models.text.wire import TOKEN, Listed, bound, named_tokens
from pfes.tasks.encode import verbalizer_tokens
from pfes.tasks.spec import TaskSpec
from pfes.tasks.turns import turns

WIDTH = 128  # bytes of text for each piece of a prompt, with zeros behind it
LENGTH = 4096  # tokens that a model takes, where neither server nor tokenizer says
LONGEST_WORD = 2  # tokens that a word has, at most on average, where no tokenizer says
USUAL_WORD = 1.3
CHAT_MARKS = 64  # tokens that a chat's own marks may take
LISTED = " (listed)"  # behind a word: whether an answer lists it, as a piece of its own
IS_LISTED, IS_NOT = 0.0, -1.0


class TextModel(LanguageModel):
    """A causal model behind a server that completes text or chats.

    One request has one text and asks for one token; the answer lists the likeliest ones. A word
    that is not listed gets the most that it can have (`wire.bound`), and that it is not listed is
    an answer of its own. A prompt is text, which `embed` spells in bytes. `checks` finds out what
    the server can do, and must be gone through first.
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
        self.service = Service(urls, key_variable, patience, spending, store)
        self.name = self.service.name
        self.served_name = served_name
        self.interface = interface
        source = None if tokenizer is None else find_model(tokenizer, trust_remote_code)
        self.tokenizer = Pieces(None if source is None else source.tokenizer)
        longest = LENGTH if source is None else int(source.tokenizer.model_max_length)
        self.max_length = min(longest, 10**6)
        self.tokens_of_a_piece = USUAL_WORD if source is None else 1.0
        self._offer: Offer | None = None

    @property
    def sent(self) -> str:  # type: ignore[override]
        return str(self.service.spending)

    @property
    def offer(self) -> Offer:
        """What the server can do."""
        assert self._offer is not None, "the server was not asked what it can do"
        return self._offer

    def checks(self, anew: bool = False) -> Iterator[Check]:
        """Find out what the server can do; what was found before is kept, unless asked `anew`."""
        server = self.service.client.servers[0]
        self.served_name, about = find_served(server, self.served_name)
        yield Check("server", f"answers at {server.url}")
        longest = about.get("max_model_len") or (about.get("meta") or {}).get("n_ctx")
        if longest is not None:
            self.max_length = min(self.max_length, int(longest) - 1)  # one is for the answer
        if self.tokens_of_a_piece > 1:
            self.max_length //= LONGEST_WORD
        yield Check("model", self.served_name)
        pieces = self.tokenizer(SENTENCE)["input_ids"]
        tokens = {self.tokenizer.token(piece) for piece in pieces} - {None}
        some = sorted(token for token in tokens if token is not None)[:2]
        offer = find_offer(self.service, self.served_name, self.interface, some, anew)
        self._offer, self.interface = offer, offer.interface
        self.tokenizer.spaced = offer.interface != "chat"
        if offer.interface == "chat":
            self.max_length -= CHAT_MARKS
        yield Check("interface", offer.interface)
        yield Check("log-probabilities", f"of the {offer.listed} likeliest words of each answer")
        if offer.names:
            yield Check("words by name", "also of words that are asked for, likely or not")

    def close(self) -> None:
        self.service.store.close()

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
    ) -> tuple[Question, list[dict[str, Any]]]:
        """Return what is sent for a template, its texts not filled in, and what is added to it.

        What is added names the words, where the server answers for those; each is a request.
        """
        template, shown = spec.template(self.family), "".join(spec.demonstrations)
        written = Written(shown + template, turns(spec, shown, template))
        question = self.offer.question(spelled_text(prompt), written)
        return question, self._parts(list(self._names(words) or ()))

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
        questions: list[Question] = []
        for prompt in prompts:
            for written in batch.written:
                path, body = self.offer.question(prompt, written)
                questions += [(path, body | part) for part in asked]
        answers = self.service.ask_all(questions)
        for row in answers:
            if not names:
                yield row
                continue
            for _ in asked[1:]:
                row |= next(answers)
            yield {text: row[f"{TOKEN}{token}"] for token, text in names.items()}

    def _parts(self, tokens: list[int]) -> list[dict[str, Any]]:
        """Return what is added to a question, for each request that names some of the tokens."""
        size = self.offer.listed
        parts = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        return [named_tokens(part) for part in parts] or [{}]


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
    for _ in model.checks():
        pass
    if spec is not None:
        verbalizer_tokens(spec, model.tokenizer)
    return model
