"""Questions to a service of text: each is asked once, and its answer is kept."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pfes.config import KEY, PATIENCE, TEXT_ONLY
from pfes.models.served.client import AnswerError, Client, Server
from pfes.models.served.daemon_pool import DaemonPool
from pfes.models.served.in_order import in_order
from pfes.models.text.answer_store import AnswerStore
from pfes.models.text.pace import Pace
from pfes.models.text.spending import Spending
from pfes.models.text.wire import NAMED, PATHS, TOKEN, Listed, listed_answers

Question = tuple[str, dict[str, Any]]  # the path and the body of a request


class Service:
    """A server, or several of one model, with what was answered, sent, and how fast."""

    def __init__(
        self,
        urls: str,
        key_variable: str | None = None,
        patience: float = PATIENCE,
        spending: Spending | None = None,
        store: AnswerStore | None = None,
    ) -> None:
        self.name = TEXT_ONLY + urls
        self.spending = spending or Spending()
        servers = [Server(url, key_variable or KEY) for url in urls.split(",")]
        self.client = Client(servers, patience, self.spending)
        self.store = store or AnswerStore()
        self.pace = Pace()
        self._pool = DaemonPool(self.pace.most)
        self._guard, self._asking = Lock(), dict[str, Lock]()

    def ask_all(self, questions: Sequence[Question], anew: bool = False) -> Iterator[Listed]:
        """Ask several at once; yield the answers in order."""
        self.pace.restart()

        def ask(question: Question) -> Listed:
            return self.ask(question, anew)

        return in_order(self._pool, self.client, lambda: self.pace.at_once, ask, questions)

    def ask(self, question: Question, anew: bool = False) -> Listed:
        """Return an answer that is kept, or ask for it and keep it."""
        path, body = question
        request = [self.name, path, body]
        with self._one_at_a_time(json.dumps(request)):  # the same text may be there twice
            kept = None if anew else self.store.get(request)
            if kept is not None:
                return dict(kept)
            listed = self.client.ask(path, body, lambda answer: self._read(question, answer))
            self.store.put(request, listed)
        self.pace.answered(self.client.slowed)
        return listed

    def a_second(self, questions: Sequence[Question]) -> float:
        """Measure how many questions a second are answered, at the pace that is found."""
        began = time.perf_counter()
        return len(list(self.ask_all(questions, anew=True))) / (time.perf_counter() - began)

    def _read(self, question: Question, answer: Any) -> Listed:
        path, body = question
        listed = listed_answers(answer, stripped=path == PATHS["chat"])
        usage = answer.get("usage") or {}
        self.spending.used(int(usage.get("total_tokens") or 0) or _tokens(body))
        for token in body.get(NAMED, ()):
            if f"{TOKEN}{token}" not in listed:
                raise AnswerError(f"no log-probability of token {token}, which was asked for")
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


def _tokens(body: dict[str, Any]) -> int:
    """Return about how many tokens a request has, where its answer does not say."""
    texts = [body["prompt"]] if "prompt" in body else [m["content"] for m in body["messages"]]
    return sum(len(text) for text in texts) // 4 + 1
