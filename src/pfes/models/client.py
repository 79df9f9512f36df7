"""Questions to a server that may be slow, busy, restarting or gone."""

import json
import logging
import os
import random
import time
from typing import Any

from pfes.errors import PfesError

API_KEY = "PFES_API_KEY"
PATIENCE = 600.0  # seconds that a server may be away
CONNECT, ANSWER = 10.0, 300.0  # seconds until a connection, an answer
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0  # seconds before a question is asked again
WORDS = 300  # characters of a server's own message

log = logging.getLogger(__name__)


class ServerAwayError(PfesError):
    """The server did not answer for longer than the run's patience."""


class Client:
    """Asks one server, in several threads; asks again where that can help.

    Connection errors, time-outs, 429, 5xx and answers that were cut off are asked again, with
    growing pauses, until `patience` seconds have passed without any answer. Any other 4xx ends the
    run with the server's own words. The key comes from the environment and goes nowhere else.
    """

    def __init__(self, url: str, patience: float = PATIENCE, connections: int = 64) -> None:
        import httpx2

        key = os.environ.get(API_KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        self.patience = patience
        self._transport_error = httpx2.TransportError
        self._secret = key
        self._answered = time.monotonic()
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

    def get(self, path: str) -> Any:
        """Ask once: whoever starts a run wants to know at once."""
        try:
            answer = self._client.get(self.url + path)
        except self._transport_error as error:
            raise ServerAwayError(f"nothing answers at {self.url} ({_reason(error)})") from None
        return self._content(answer)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask until there is an answer, or patience is at an end."""
        content = json.dumps(body).encode()
        wait, began = FIRST_WAIT, time.monotonic()
        while True:
            try:
                return self._once(path, content)
            except _TryAgainError as trouble:
                now = time.monotonic()
                since = now - max(began, self._answered)
                pause = max(trouble.wait or 0.0, wait * random.uniform(0.5, 1.5))
                if since + pause > self.patience:
                    raise ServerAwayError(
                        f"{self.url} did not answer for {since:.0f} s ({trouble}); when it is "
                        "back, the same command with --resume goes on"
                    ) from None
                if wait == FIRST_WAIT:
                    log.warning("%s: %s; asking again", self.url, trouble)
                time.sleep(pause)
                wait = min(2 * wait, LONGEST_WAIT)

    def _once(self, path: str, content: bytes) -> Any:
        try:
            answer = self._client.post(
                self.url + path, content=content, headers={"Content-Type": "application/json"}
            )
        except self._transport_error as error:
            raise _TryAgainError(_reason(error)) from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise _TryAgainError(f"status {answer.status_code}", _seconds(answer))
        found = self._content(answer)
        self._answered = time.monotonic()
        return found

    def _content(self, answer: Any) -> Any:
        if answer.status_code >= 400:
            words = self._words(answer)
            hint = f": set {API_KEY}" if answer.status_code in (401, 403) else ""
            raise RefusedError(f"{self.url} refuses ({answer.status_code}{hint}): {words}")
        try:
            return answer.json()
        except ValueError:
            raise _TryAgainError("the answer is not whole") from None

    def _words(self, answer: Any) -> str:
        """Return the server's own message, on one line, without the key."""
        try:
            content = answer.json()
            error = content.get("error", content.get("detail", content))
            text = str(error.get("message", error) if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            text = str(answer.text)
        text = " ".join(text.split())[:WORDS]
        return text.replace(self._secret, "…") if self._secret else text


class RefusedError(PfesError):
    """The server says that the question itself is wrong."""


class _TryAgainError(PfesError):
    """The same question may be answered later."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _seconds(answer: Any) -> float | None:
    """Return what the server says of when to ask again."""
    try:
        return min(float(answer.headers["Retry-After"]), LONGEST_WAIT)
    except (KeyError, ValueError):
        return None
