# SPDX-License-Identifier: Apache-2.0
"""A fenced run between its start and the moment when somebody sees its end."""

from __future__ import annotations

import _thread
import contextlib
import threading
from typing import TYPE_CHECKING

from nn_runtime.errors import OperationFailed
from nn_runtime.hal import fences
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.latch import Latch

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.errors import NNError
    from nn_runtime.outcome import FencedOutcome


class FencedRun:
    """What has been started, and completes its execution once: at a wait for its event, or for whom its end matters.

    It holds the execution, and so what the driver writes to, and owns the fence. Where the event is dropped unwaited,
    a thread waits.
    """

    fence: int | None = None
    """Closed with the last reference to this."""

    def __init__(self, outcome: FencedOutcome, complete: Callable[[FencedRun, bool], NNError | None]) -> None:
        """`complete` is told whether the fence signalled without error, and returns the error of the execution."""
        self.outcome = outcome
        self.is_left = False
        """Whether nobody can wait for it any more."""
        self.fence = outcome.fence
        self._complete = complete
        self._lock = threading.Lock()
        self._ender: object | None = None
        """The call that completes the execution, or has completed it."""
        self._ended = Latch()
        self._error: NNError | None = None

    def end(self, succeeded: bool) -> NNError | None:
        """Complete the execution, or wait for who does, now that the fence has signalled; return its error."""
        self._end(succeeded)
        self._ended.wait()
        return self._error

    def poll(self) -> bool:
        """Complete the execution if the fence has signalled; return whether it is completed, and wait for nobody."""
        status = fences.FenceStatus.SIGNALLED if self.fence is None else fences.wait(self.fence, 0)
        if status != fences.FenceStatus.PENDING:
            self._end(status == fences.FenceStatus.SIGNALLED)
        return self._ended.is_open

    def see_end(self) -> bool:
        """Do as `poll`, but wait for whoever completes the execution just now, who must not need the caller for it."""
        return self.poll() or (self._ender is not None and self._ended.wait())

    def leave(self) -> None:
        """Let a thread complete the execution; nothing is locked, as garbage collection may ask for it anywhere."""
        self.is_left = True
        with contextlib.suppress(RuntimeError):  # the interpreter ends, or there are too many threads: others may look
            _thread.start_new_thread(self._wait, ())

    def _wait(self) -> None:
        if self.fence is not None:
            fences.wait(self.fence)
        self.poll()

    def _end(self, succeeded: bool) -> None:
        """Complete the execution, unless somebody else does."""
        call = object()
        try:
            with self._lock:
                if self._ender is None:
                    self._ender = call
            if self._ender is call:
                self._complete_and_tell(succeeded)
        except BaseException:  # an interrupt, after which whoever else waits shall know how the run ended
            if self._ender is call and not self._ended.is_open:
                self._complete_and_tell(succeeded)
            raise

    def _complete_and_tell(self, succeeded: bool) -> None:
        try:
            self._error = self._complete(self, succeeded)
        except Exception as error:
            pass_interrupt(error)
            self._error = OperationFailed("the execution could not be completed")
            self._ended.open()
            raise
        self._ended.open()

    def __del__(self) -> None:
        if self.fence is not None:
            fences.close(self.fence)
