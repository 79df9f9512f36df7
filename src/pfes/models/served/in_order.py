"""Several requests at once, their answers in order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pfes.models.served.client import Client
from pfes.models.served.daemon_pool import DaemonPool

Part = TypeVar("Part")
Answer = TypeVar("Answer")


def in_order(
    pool: DaemonPool,
    client: Client,
    at_once: Callable[[], int],
    ask: Callable[[Part], Answer],
    parts: Sequence[Part],
) -> Iterator[Answer]:
    """Ask about all parts, `at_once()` of them at a time; yield the answers in their order.

    An error, Ctrl-C too, ends all other requests.
    """
    waiting: list[Any] = []
    client.go_on()
    try:
        for part in parts:
            waiting.append(pool.submit(ask, part))
            while len(waiting) >= at_once():
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    except BaseException:  # also Ctrl-C: nobody waits for the others any more
        client.stop()
        raise
    finally:
        for future in waiting:
            future.cancel()
