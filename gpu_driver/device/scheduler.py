# SPDX-License-Identifier: Apache-2.0
"""Who uses a device: a few at once, the others wait by priority, and among equals in order of arrival."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from nn_runtime.hal.types import ErrorStatus, HalError, Priority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_FIRST_OF_ALL = max(Priority) + 1


class Scheduler:
    """A fixed number of slots. Whoever waits is served by priority: HIGH before MEDIUM before LOW."""

    def __init__(self, slots: int) -> None:
        """All slots are free."""
        self._slots = slots
        self._free = slots
        self._lock = threading.Lock()
        self._waiting: list[_Turn] = []
        self._arrivals = itertools.count()
        self._closed = False
        self._left = 0
        """How many have left so far."""
        self._collecting = Scheduler(1) if slots > 1 else self
        """Who may wait for every slot: two might each hold some."""

    def slot(self, priority: Priority, deadline_ns: int | None = None) -> _Slot:
        """Return a context manager that holds a slot.

        Entering raises HalError(MISSED_DEADLINE_TRANSIENT) where none is free before `deadline_ns` (monotonic).
        """
        return _Slot(self, priority, deadline_ns)

    @contextmanager
    def alone(self, priority: Priority, deadline_ns: int | None = None) -> Iterator[None]:
        """Hold all slots; raises as entering one does."""
        slots = [self._collecting.slot(priority, deadline_ns)]
        slots += [self.slot(priority, deadline_ns) for _ in range(self._slots)]
        try:
            for slot in slots:
                slot.__enter__()
            yield
        finally:
            for slot in reversed(slots):
                slot.abandon()

    def close(self, timeout_seconds: float) -> bool:
        """Take every slot for ever, waiting for those in use; return whether that was possible in time.

        For the end of the interpreter: from then on the main thread gets HalError(DEVICE_UNAVAILABLE), and other
        threads, which can only be daemons, wait for the end of the process.
        """
        self._closed = True
        deadline_ns = time.monotonic_ns() + int(timeout_seconds * 1e9)
        try:
            for _ in range(self._slots):
                self._take(_FIRST_OF_ALL, deadline_ns)
        except HalError:
            return False
        return True

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        with self._lock:
            return len(self._waiting)

    def _enter(self, priority: int, deadline_ns: int | None) -> None:
        if self._closed and threading.current_thread() is threading.main_thread():
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the interpreter is ending")
        self._take(priority, deadline_ns)

    def _take(self, priority: int, deadline_ns: int | None) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = _Turn(priority, next(self._arrivals))
            heapq.heappush(self._waiting, turn)
        try:
            if turn.wait(deadline_ns):
                return
        except BaseException:
            self._withdraw(turn)
            raise
        self._withdraw(turn)
        raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the deadline passed while the device was busy")

    def _withdraw(self, turn: _Turn) -> None:
        """Leave the line, or hand on the slot that came too late."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                heapq.heapify(self._waiting)
            else:
                self._hand_on()

    def _hand_on(self) -> None:
        """Give a slot to who waits longest, or free it; the lock is held."""
        self._left += 1
        if self._waiting:
            heapq.heappop(self._waiting).come()
        else:
            self._free += 1


class _Slot:
    """Holds a slot while it is entered; may be entered again and again, by one thread at a time.

    An interrupt (KeyboardInterrupt) may come wherever Python runs, within these methods too: whoever catches one that
    came out of the `with` block calls `abandon`.
    """

    __slots__ = ("_deadline_ns", "_holder", "_left_before", "_priority", "_scheduler", "was_shared")

    def __init__(self, scheduler: Scheduler, priority: Priority, deadline_ns: int | None) -> None:
        self._scheduler = scheduler
        self._priority = priority
        self._deadline_ns = deadline_ns
        self._holder = 0
        """The thread that holds the slot, else 0."""
        self._left_before = 0
        self.was_shared = False
        """After a `with` block that failed: whether others held slots meanwhile."""

    def __enter__(self) -> None:
        scheduler = self._scheduler
        thread = get_ident()
        with scheduler._lock:
            if scheduler._free and not scheduler._closed:
                scheduler._free -= 1
                self._holder = thread
                self._left_before = scheduler._left
                return
        self._left_before = scheduler._left
        scheduler._enter(self._priority, self._deadline_ns)
        self._holder = thread

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scheduler = self._scheduler
        with scheduler._lock:
            if kind is not None:
                self.was_shared = scheduler._free < scheduler._slots - 1 or scheduler._left != self._left_before
            self._holder = 0
            scheduler._hand_on()

    def abandon(self) -> None:
        """Give the slot back if this thread still holds it: an interrupt came as it was taken, or as it was left."""
        if self._holder == get_ident():
            self.__exit__(None, None, None)


class _Turn:
    """A place in the line."""

    def __init__(self, priority: int, arrival: int) -> None:
        self._order = (-priority, arrival)
        self._lock = threading.Lock()
        self._lock.acquire()

    def __lt__(self, other: _Turn) -> bool:
        return self._order < other._order

    def come(self) -> None:
        self._lock.release()

    def wait(self, deadline_ns: int | None) -> bool:
        """Wait for the turn; return False if the deadline came before."""
        if deadline_ns is None:
            return self._lock.acquire()
        seconds = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        return self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
