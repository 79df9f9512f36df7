"""What a server of text can do: found out once, by asking."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from pfes.contract import Interface, Written
from pfes.errors import PfesError, SettingError
from pfes.models.served.client import AnswerError, RefusedError, Server, TryAgainError
from pfes.models.text.service import Question, Service
from pfes.models.text.wire import PATHS, QUESTIONS, TOKEN, named_tokens

SENTENCE = "The weather is fine today, and the sky is"
ONE_WORD = "Answer with one word."
HELLO = Written(SENTENCE, (ONE_WORD, "Is water wet, yes or no?"))
COUNTS = (128, 50, 20, 10, 5, 1)  # words of a list that are asked for, until a server gives them
TOO_MANY = (400, 422)  # how servers refuse a list that is too long for them
FORBIDDEN = (401, 403)


@dataclass(frozen=True)
class Offer:
    """What a server was seen to be able to do."""

    model: str  # what it calls the model
    interface: Interface
    listed: int  # words of a list, at most
    names: bool  # whether it answers for words that are named, as vLLM does

    def question(self, prompt: str, written: Written) -> Question:
        """Return what is asked about a text behind a prompt."""
        body = QUESTIONS[self.interface](prompt, written, self.listed)
        return PATHS[self.interface], {"model": self.model} | body


def find_served(server: Server, name: str | None) -> tuple[str, dict[str, Any]]:
    """Return a model's name on its server, and what the server says about it."""
    try:
        offered = server.get("/models")["data"]
        served = {str(model["id"]): dict(model) for model in offered}
    except (KeyError, TypeError, TryAgainError):
        raise PfesError(f"{server.url} is not an OpenAI-like server") from None
    except RefusedError as error:
        raise PfesError(f"{error}; the address usually ends with /v1") from None
    if name is None and len(served) == 1:
        return next(iter(served.items()))
    if name not in served:
        some = ", ".join(list(served)[:5]) or "nothing"
        named = some if len(served) <= 5 else f"{some} and {len(served) - 5} others"
        raise SettingError("served_name", f"no {name}: {server.url} has {named}")
    return name, served[name]


def find_offer(
    service: Service, model: str, interface: Interface | None, tokens: list[int], anew: bool
) -> Offer:
    """Return the interface that works, with the longest list that it gives.

    What was found before is kept, unless it is to be found `anew`. `tokens` are some of the model's
    own, where its tokenizer is known, to be asked for by name.
    """
    kinds: tuple[Interface, ...] = ("completions", "chat")
    tried = kinds if interface is None else (interface,)
    for kind in tried:
        request = ["offer", service.name, model, kind, len(tokens)]
        kept = None if anew else service.store.get(request)
        if kept:
            return Offer(**kept)
        try:
            offer = _try_interface(service, Offer(model, kind, 1, False), tokens, anew)
        except (RefusedError, AnswerError) as error:
            if kind == tried[-1] or getattr(error, "status", 0) in FORBIDDEN:
                raise
            continue
        service.store.put(request, asdict(offer))
        return offer
    raise AssertionError("the last one returns or raises")


def _try_interface(service: Service, offer: Offer, tokens: list[int], anew: bool) -> Offer:
    """Ask for fewer and fewer words until the server answers."""
    for count in COUNTS:
        tried = replace(offer, listed=count)
        try:
            service.ask(tried.question("", HELLO), anew)
        except RefusedError as error:
            if count == COUNTS[-1] or error.status not in TOO_MANY:
                raise
            continue
        names = tried.interface == "completions" and _try_names(service, tried, tokens, anew)
        return replace(tried, names=names)
    raise AssertionError("the last one returns or raises")


def _try_names(service: Service, offer: Offer, tokens: list[int], anew: bool) -> bool:
    """Say whether the server answers for tokens that are named."""
    if len(tokens) < 2:
        return False
    path, body = offer.question("", HELLO)
    try:
        listed = service.ask((path, body | named_tokens(tokens)), anew)
    except (RefusedError, AnswerError):
        return False
    return all(f"{TOKEN}{token}" in listed for token in tokens)
