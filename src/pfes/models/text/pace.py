"""How many requests are under way at once: measured on the requests themselves."""

import threading
import time

MOST = 16
WINDOW = 4  # answers for each request at once, between two looks at the speed
ENOUGH = 1.15  # times as fast, for twice as many requests at once to be worth it


class Pace:
    """Begins with two requests at a time, and doubles them as long as that is faster.

    Every series of requests tries again, as a server may have been busy with something else. One
    that answers 429 gets half as many from then on.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.at_once = min(2, most)
        self._settled = False
        self._best = 0.0
        self._slowed = 0
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Begin a series of requests: the time before it does not count."""
        with self._lock:
            self._answers, self._began = 0, time.perf_counter()
            self._settled, self._best = self._slowed > 0, 0.0

    def answered(self, slowed: int) -> None:
        """Note an answer; `slowed` is how often the server has answered 429 so far."""
        with self._lock:
            if slowed > self._slowed:
                self._slowed, self._settled = slowed, True
                self.at_once = max(1, self.at_once // 2)
            self._answers += 1
            if self._settled or self._answers < WINDOW * self.at_once:
                return
            now = time.perf_counter()
            speed = self._answers / (now - self._began)
            if speed < ENOUGH * self._best:
                self._settled = True
                self.at_once = max(1, self.at_once // 2)
            elif self.at_once == self.most:
                self._settled = True
            else:
                self._best = speed
                self.at_once = min(2 * self.at_once, self.most)
            self._answers, self._began = 0, now
