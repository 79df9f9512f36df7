"""What a session sends to a service, and how much it may send."""

import threading

from pfes.errors import PfesError


class LimitReachedError(PfesError):
    """A session has sent all that it may."""


class Spending:
    """Counts requests and tokens from several threads; beyond a limit, no request begins.

    A request that the server refuses is not counted. One whose answer never came, is: it may have
    to be paid.
    """

    def __init__(self, max_requests: int | None = None, max_tokens: int | None = None) -> None:
        self.requests = 0
        self.tokens = 0
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Count a request that is about to be sent, or refuse it."""
        with self._lock:
            for setting, value, limit in (
                ("max-requests", self.requests, self._max_requests),
                ("max-tokens", self.tokens, self._max_tokens),
            ):
                if limit is not None and value >= limit:
                    raise LimitReachedError(
                        f"--{setting} {limit} is reached, {self}; answers are kept: the same "
                        f"command with --resume and a higher --{setting} goes on"
                    )
            self.requests += 1

    def refused(self) -> None:
        """Take back a request that need not be paid."""
        with self._lock:
            self.requests -= 1

    def used(self, tokens: int) -> None:
        """Count the tokens of a request and its answer."""
        with self._lock:
            self.tokens += tokens

    def __str__(self) -> str:
        return f"{self.requests:,} requests with {self.tokens:,} tokens were sent"
