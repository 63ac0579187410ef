# SPDX-License-Identifier: Apache-2.0
"""Completion of an asynchronous or fenced execution, and sync fences of others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, SupportsFloat

from nn_runtime.checks import shown
from nn_runtime.errors import BadData, BadState, MissedDeadline, OperationFailed, forget_frames
from nn_runtime.hal import fences
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.latch import Latch
from nn_runtime.numeric import whole

if TYPE_CHECKING:
    from nn_runtime.errors import NNError
    from nn_runtime.fenced_run import FencedRun

_LONGEST_WAIT_S = 1e6


class Event:
    """Signalled when an execution has ended; holds its error. `wait` may be called any number of times."""

    def __init__(self) -> None:
        """Start unsignalled."""
        self._done = Latch()
        self._error: NNError | None = None
        self._signaller = 0
        """The thread that will signal, once it says so."""

    @classmethod
    def from_sync_fence_fd(cls, fd: int) -> FenceEvent:
        """Return an event that is signalled when a sync fence is; the descriptor is duplicated. Raises BadData."""
        if whole("event: sync fence descriptor", fd) <= 0:
            raise BadData(f"event: a sync fence descriptor must be > 0, got {fd}")
        return FenceEvent(fences.duplicate(fd))

    @property
    def fence(self) -> int | None:
        """The event's own sync fence descriptor, for as long as the event is open; None if it has none."""
        return None

    def begin(self) -> None:
        """Say that this thread will signal: it can wait for itself in no finalizer that runs meanwhile."""
        self._signaller = threading.get_ident()

    def signal(self, error: NNError | None) -> None:
        """Say that the execution has ended, with its error if it failed."""
        if error is not None:
            forget_frames(error)
        self._error = error
        self._done.open()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the execution has ended; raises its error, or MissedDeadline after `timeout` seconds.

        Raises BadData for a timeout that is negative or no number, BadState in a finalizer that the collection of
        garbage runs in the execution's own thread.
        """
        if self._waits_for_itself():
            raise BadState("event: the execution is this thread's own, and cannot end while it is waited for here")
        if not self._done.wait(_checked(timeout)):
            raise MissedDeadline(f"event: the execution has not ended within {timeout} s")
        if self._error is not None:
            raise self._error.with_traceback(None)  # each wait has one of its own

    def sync_fence_fd(self) -> int:
        """Return a new descriptor of the event's sync fence; raises BadData if it has none."""
        fence = self.fence
        if fence is None:
            raise BadData("event: it has no sync fence")
        return fences.duplicate(fence)

    def close(self) -> None:
        """Wait for the end, whatever it is; do nothing where `wait` raises BadState."""
        if not self._waits_for_itself():
            self._done.wait()

    def _waits_for_itself(self) -> bool:
        return self._signaller == threading.get_ident() and not self._done.is_open

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class FenceEvent(Event):
    """Signalled when a sync fence is. The first wait runs the finish of the execution that it belongs to."""

    _fence: int | None = None
    _run: FencedRun | None = None

    def __init__(self, fence: int | None, run: FencedRun | None = None) -> None:
        """`fence`: None if all is done; owned by the event, or else by the run whose end it tells."""
        super().__init__()
        self._fence = fence
        self._run = run
        self._lock = threading.Lock()

    @property
    def fence(self) -> int | None:
        """The sync fence descriptor."""
        return self._fence

    def wait(self, timeout: float | None = None) -> None:
        """Return when the fence has signalled; raises as `Event.wait`."""
        limit = _checked(timeout)
        if not self._done.is_open:
            status = fences.FenceStatus.SIGNALLED if self._fence is None else fences.wait(self._fence, limit)
            if status == fences.FenceStatus.PENDING:
                raise MissedDeadline(f"event: the fence has not signalled within {timeout} s")
            with self._lock:
                if not self._done.is_open:
                    self.signal(self._finished(status == fences.FenceStatus.SIGNALLED))
        super().wait()

    def close(self) -> None:
        """Wait for the end, whatever it is, and close the fence."""
        if not self._done.is_open:
            try:
                self.wait()
            except Exception as error:
                pass_interrupt(error)
                if not self._done.is_open:  # what completes the execution failed itself
                    self.signal(OperationFailed(f"event: {type(error).__name__}: {error}"))
        self._let_go()

    def __del__(self) -> None:
        """Close the fence without waiting."""
        if self._run is not None and not self._done.is_open:
            self._run.leave()
        self._let_go()

    def _let_go(self) -> None:
        fence, self._fence = self._fence, None
        run, self._run = self._run, None
        if run is None and fence is not None:
            fences.close(fence)

    def _finished(self, succeeded: bool) -> NNError | None:
        if self._run is not None:
            return self._run.end(succeeded)
        return None if succeeded else OperationFailed("event: the sync fence signalled an error")


def _checked(timeout: float | None) -> float | None:
    """Return a timeout in seconds, None for one that is longer than systems count; raises BadData."""
    if timeout is None:
        return None
    if not isinstance(timeout, SupportsFloat) or not float(timeout) >= 0:  # as NaN is not
        raise BadData(f"event: wanted a timeout >= 0 s, or None, got {shown(timeout)}")
    return float(timeout) if timeout < _LONGEST_WAIT_S else None
