# SPDX-License-Identifier: Apache-2.0
"""A moment that threads wait for."""

from __future__ import annotations

import threading
from collections import deque


class Latch:
    """Opened once, and open from then on.

    Like threading.Event, but a wait that is interrupted (KeyboardInterrupt) leaves no lock behind, for which whoever
    opens would wait for ever.
    """

    __slots__ = ("_waiting", "is_open")

    def __init__(self) -> None:
        """Start closed."""
        self.is_open = False
        self._waiting: deque[threading.Lock] = deque()
        """A lock for each thread that waits, until it is told."""

    def open(self) -> None:
        """Let all go on who wait, and who will."""
        self.is_open = True  # who joins the line from here on looks at it
        waiting = self._waiting
        while waiting:
            try:
                lock = waiting.pop()
            except IndexError:  # another thread opens, too
                return
            lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, at most `timeout` seconds; return whether it is."""
        if self.is_open:
            return True
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        if not self.is_open and not lock.acquire(timeout=-1 if timeout is None else timeout):
            try:
                self._waiting.remove(lock)
            except ValueError:  # it is being opened
                return True
        return self.is_open
