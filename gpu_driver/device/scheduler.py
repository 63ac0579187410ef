# SPDX-License-Identifier: Apache-2.0
"""Who uses a device: a few at once, the others wait by priority, and among equals in order of arrival."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

from nn_runtime.hal.types import ErrorStatus, HalError, Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

Result = TypeVar("Result")

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
        self._collecting = Scheduler(1) if slots > 1 else None
        """Who may wait for every slot, of several: two might each hold some."""

    def slot(self, priority: Priority, deadline_ns: int | None = None) -> Slot:
        """Return a context manager that holds a slot.

        Entering raises HalError(MISSED_DEADLINE_TRANSIENT) where none is free before `deadline_ns` (monotonic).
        """
        return Slot(self, priority, deadline_ns)

    def alone(self, priority: Priority, deadline_ns: int | None = None) -> _Alone:
        """Return a context manager that holds all slots; entering raises as that of one does."""
        slots = [self.slot(priority, deadline_ns) for _ in range(self._slots)]
        return _Alone(slots if self._collecting is None else [self._collecting.slot(priority, deadline_ns), *slots])

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

    def _enter(self, slot: Slot, thread: int) -> None:
        if self._closed and threading.current_thread() is threading.main_thread():
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the interpreter is ending")
        self._take(slot._priority, slot._deadline_ns, slot, thread)

    def _take(self, priority: int, deadline_ns: int | None, slot: Slot | None = None, thread: int = 0) -> None:
        """Take a slot, at once or when it is this thread's turn."""
        turn: _Turn | None = None
        try:
            with self._lock:
                if self._free:
                    self._free -= 1
                    if slot is not None:
                        slot._holder = thread
                    return
                turn = _Turn(priority, next(self._arrivals))
                heapq.heappush(self._waiting, turn)
            if turn.wait(deadline_ns):
                if slot is not None:
                    slot._holder = thread
                return
            self._withdraw(turn)
        except BaseException:
            if turn is not None:
                self._withdraw(turn)
            raise
        raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the deadline passed while the device was busy")

    def _withdraw(self, turn: _Turn) -> None:
        """Leave the line, or hand on the slot that came too late; the second time nothing."""
        with self._lock:
            if turn.is_over:
                return
            turn.is_over = True
            if turn in self._waiting:
                self._waiting.remove(turn)
                heapq.heapify(self._waiting)
            else:
                self._hand_on()

    def _hand_on(self, slot: Slot | None = None) -> None:
        """Give a slot, of whoever held it, to who waits longest, or free it; the lock is held."""
        if slot is not None:
            slot._holder = 0
        self._left += 1
        if not self._waiting:
            self._free += 1
            return
        turn = self._waiting[0]
        try:
            self._serve(turn)
        except BaseException:  # an interrupt, of which whoever waits shall not know
            self._serve(turn)
            raise

    def _serve(self, turn: _Turn) -> None:
        """Let whoever is first in the line come; the second time nothing."""
        turn.come()
        if self._waiting and self._waiting[0] is turn:
            heapq.heappop(self._waiting)


class Slot:
    """Holds a slot while it is entered; may be entered again and again, by one thread at a time.

    An interrupt (KeyboardInterrupt) may come wherever Python calls something, within these methods too: whoever catches
    one that came out of the `with` block calls `abandon`. Between two calls none comes: there a slot changes hands.
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
        scheduler._enter(self, thread)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scheduler = self._scheduler
        with scheduler._lock:
            if kind is not None:
                beside = scheduler._free < scheduler._slots - 1 or scheduler._left != self._left_before
                self.was_shared = beside and scheduler._slots > 1
            scheduler._hand_on(self)

    def alone(self) -> _Alone:
        """Return a context manager that holds all slots, entered by the same priority and deadline."""
        return self._scheduler.alone(self._priority, self._deadline_ns)

    def during(self, work: Callable[[], Result]) -> Result:
        """Return what `work` does with the slot held, which an interrupt does not cost, wherever it comes."""
        try:
            with self:
                return work()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give the slot back if this thread still holds it: an interrupt came as it was taken, or as it was left."""
        if self._holder == get_ident():
            self.__exit__(None, None, None)


class _Alone:
    """Holds slots while it is entered, taken one after the other; of interrupts the same is true as of `Slot`'s."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    def __enter__(self) -> None:
        try:
            for slot in self._slots:
                slot.__enter__()
        except BaseException:
            self.abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Give back the slots that this thread still holds."""
        for slot in reversed(self._slots):
            slot.abandon()


class _Turn:
    """A place in the line."""

    def __init__(self, priority: int, arrival: int) -> None:
        self._order = (-priority, arrival)
        self.is_over = False
        """Whether whoever waited has gone away."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def __lt__(self, other: _Turn) -> bool:
        return self._order < other._order

    def come(self) -> None:
        if self._lock.locked():
            self._lock.release()

    def wait(self, deadline_ns: int | None) -> bool:
        """Wait for the turn; return False if the deadline came before."""
        if deadline_ns is None:
            return self._lock.acquire()
        seconds = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        return self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
