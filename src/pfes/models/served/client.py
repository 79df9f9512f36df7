"""Requests to a server that may be slow, busy, restarting or gone."""

import json
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

from pfes.config import PATIENCE
from pfes.errors import PfesError

API_KEY = "PFES_API_KEY"
CONNECT, ANSWER = 10.0, 300.0  # seconds until a connection, an answer
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0  # seconds before a question is asked again
LONGEST_MESSAGE = 300  # characters of a server's own message
TRIES = 3  # of a question whose answer does not have what was asked for
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)


class ServerAwayError(PfesError):
    """The server did not answer for longer than the run's patience."""


class Client:
    """Asks one server, or several of one model in turn, from several threads.

    Connection errors, time-outs, 429, 5xx and answers that were cut off are asked again, of the
    next server if there are several; one that failed is left alone for growing pauses. When nobody
    has answered for `patience` seconds, the run stops. Any other 4xx ends it with the server's own
    message.
    """

    def __init__(
        self,
        servers: Sequence["Server"],
        patience: float = PATIENCE,
        meter: "Meter | None" = None,
    ) -> None:
        self.servers = servers
        self.patience = patience
        self._meter = meter
        self._lock = threading.Lock()
        self._turn = 0
        self._answered = time.monotonic()
        self._stopped = threading.Event()
        self.slowed = 0  # how often a server has asked to be asked less often

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.servers)

    def go_on(self) -> None:
        """Allow requests again after `stop`."""
        self._stopped.clear()

    def stop(self) -> None:
        """Make every waiting request give up: nobody needs its answer."""
        self._stopped.set()

    def ask(self, path: str, body: dict[str, Any], read: Callable[[Any], Answer]) -> Answer:
        """Ask until an answer has what was asked for, a few times; `read` finds it."""
        for last in (False,) * (TRIES - 1) + (True,):
            try:
                return read(self.post(path, body))
            except AnswerError as error:
                if last:
                    raise AnswerError(f"{self.url}: {error}") from None
        raise AssertionError("the last try returns or raises")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask until there is an answer, or until patience has run out."""
        content = json.dumps(body).encode()
        began = time.monotonic()
        while True:
            if self._stopped.is_set():
                raise ServerAwayError(f"{self.url}: the request was given up")
            server = self._next()
            pause = server.rests_until - time.monotonic()
            if pause > 0:  # no server is ready
                since = time.monotonic() - max(began, self._answered)
                left = self.patience - since
                if left <= 0:
                    raise ServerAwayError(
                        f"{self.url} did not answer for {since:.0f} s ({server.trouble}); when it "
                        "is back, the same command with --resume goes on"
                    )
                self._stopped.wait(min(pause, left))
                continue
            sent = time.monotonic()
            try:
                answer = self._send(server, path, content)
            except TryAgainError as trouble:
                with self._lock:
                    server.rest(trouble, sent)
                    self.slowed += trouble.too_many
            else:
                server.wake()
                self._answered = time.monotonic()
                return answer

    def _send(self, server: "Server", path: str, content: bytes) -> Any:
        """Ask once, and count it if it is to be counted."""
        if self._meter is None:
            return server.post(path, content)
        self._meter.begin()
        try:
            return server.post(path, content)
        except (TryAgainError, RefusedError) as trouble:
            if trouble.unpaid:
                self._meter.refused()
            raise

    def _next(self) -> "Server":
        """Return the next server that is ready, or the one that will be ready first."""
        with self._lock:
            now = time.monotonic()
            for _ in self.servers:
                server = self.servers[self._turn % len(self.servers)]
                self._turn += 1
                if server.rests_until <= now:
                    return server
            return min(self.servers, key=lambda server: server.rests_until)


class Meter(Protocol):
    """Counts the requests that are sent, and may refuse them."""

    def begin(self) -> None: ...

    def refused(self) -> None: ...


class Server:
    """One server; the key comes from the environment variable and goes nowhere else."""

    def __init__(self, url: str, key_variable: str = API_KEY, connections: int = 64) -> None:
        import httpx2

        key = os.environ.get(key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise PfesError(f"{key_variable} has characters that no key has")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        self.rests_until = -math.inf
        self.trouble: TryAgainError | None = None
        self._wait = FIRST_WAIT
        self._rested = -math.inf
        self._transport_error = httpx2.TransportError
        self._connect_error = (httpx2.ConnectError, httpx2.ConnectTimeout)
        self._secret, self._key_variable = key, key_variable
        try:
            self._client = httpx2.Client(
                headers=headers,
                timeout=httpx2.Timeout(ANSWER, connect=CONNECT),
                limits=httpx2.Limits(max_connections=connections),
                trust_env=False,
            )
            httpx2.URL(self.url)
        except (httpx2.InvalidURL, ValueError) as error:
            raise PfesError(f"{url}: {error}") from None

    def rest(self, trouble: "TryAgainError", sent: float) -> None:
        """Leave the server alone, for longer than the last time.

        Of several requests that were under way when it failed, only the first counts.
        """
        if sent <= self._rested:
            return
        if self.trouble is None:
            log.warning("%s: %s; asking again", self.url, trouble)
        self.trouble = trouble
        pause = max(trouble.wait or 0.0, self._wait * random.uniform(0.5, 1.5))
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._rested = time.monotonic()
        self.rests_until = self._rested + pause

    def wake(self) -> None:
        """Note that the server has answered."""
        self.trouble, self._wait, self.rests_until = None, FIRST_WAIT, -math.inf

    def get(self, path: str) -> Any:
        """Ask once: whoever starts a run wants to know immediately."""
        try:
            answer = self._client.get(self.url + path)
        except self._transport_error as error:
            raise ServerAwayError(
                f"nothing answers at {self.url} ({self._reason(error)})"
            ) from None
        return self._content(answer)

    def post(self, path: str, content: bytes) -> Any:
        """Ask once; what may pass is a `TryAgainError`."""
        try:
            answer = self._client.post(
                self.url + path, content=content, headers={"Content-Type": "application/json"}
            )
        except self._transport_error as error:
            unpaid = isinstance(error, self._connect_error)
            raise TryAgainError(self._reason(error), unpaid=unpaid) from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise TryAgainError(
                f"status {answer.status_code}",
                _seconds(answer),
                unpaid=True,
                too_many=answer.status_code == 429,
            )
        return self._content(answer)

    def _content(self, answer: Any) -> Any:
        if answer.status_code >= 400:
            message = self._message(answer)
            hint = f": set {self._key_variable}" if answer.status_code in (401, 403) else ""
            status = answer.status_code
            raise RefusedError(f"{self.url} refuses ({status}{hint}): {message}", status)
        try:
            return answer.json()
        except ValueError:
            raise TryAgainError("the answer is not whole") from None

    def _message(self, answer: Any) -> str:
        """Return the server's own message, on one line, without the key."""
        try:
            content = answer.json()
            error = content.get("error", content.get("detail", content))
            text = str(error.get("message", error) if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            text = str(answer.text)
        return self._shown(text)

    def _reason(self, error: Exception) -> str:
        return self._shown(str(error)) or type(error).__name__

    def _shown(self, text: str) -> str:
        """Return a text on one line, without the key, and not too long."""
        text = " ".join(text.split())
        return (text.replace(self._secret, "…") if self._secret else text)[:LONGEST_MESSAGE]


class AnswerError(PfesError):
    """An answer that does not have what was asked for."""


class RefusedError(PfesError):
    """The server says that the question itself is wrong."""

    unpaid = True

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class TryAgainError(PfesError):
    """The same question may be answered later."""

    def __init__(
        self,
        message: str,
        wait: float | None = None,
        unpaid: bool = False,
        too_many: bool = False,
    ) -> None:
        super().__init__(message)
        self.wait = wait
        self.unpaid = unpaid  # whether the server has surely done no work
        self.too_many = too_many  # requests at a time, says the server


def _seconds(answer: Any) -> float | None:
    """Return how many seconds the server asks us to wait: a number, or until a date."""
    asked = answer.headers.get("Retry-After", "")
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return seconds if 0 <= seconds < math.inf else None
