"""Threads that wait for servers without keeping the process alive."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DaemonPool:
    """Like an executor of `concurrent.futures`, but Python exits without waiting for it."""

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        for _ in range(threads):
            threading.Thread(target=_work, args=(self._tasks,), daemon=True).start()
        weakref.finalize(self, _end, self._tasks, threads)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a thread call the function; the future has its result."""
        future: Future[Any] = Future()
        self._tasks.put((future, function, arguments))
        return future


def _end(tasks: "SimpleQueue[Task | None]", threads: int) -> None:
    for _ in range(threads):
        tasks.put(None)


def _work(tasks: "SimpleQueue[Task | None]") -> None:
    while (task := tasks.get()) is not None:
        future, function, arguments = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        del future, function, arguments, task  # so that a waiting thread keeps nothing alive
