# SPDX-License-Identifier: Apache-2.0
"""Threads that help whoever copies a large array: one thread alone does not reach the speed of the memory."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Work: TypeAlias = "Callable[[], None]"
"""Takes a part after the other from what several threads share, until none is left."""


class CopyThreads:
    """A few threads that are started when they are first called, and end by `end` or with this object.

    They are daemons, and inside nothing while nobody shares work with them: the end of the interpreter need not wait
    for them, only for those who share.
    """

    def __init__(self, most: int) -> None:
        """Start nothing yet; `most` threads help at most."""
        self._most = most
        self._lock = threading.Lock()
        self._calls: SimpleQueue[Work | None] = SimpleQueue()
        self._started = 0

    def __del__(self) -> None:
        """Let the threads end."""
        self._calls.put(None)

    def share(self, work: Work, threads: int) -> None:
        """Have `work` done by this thread and by others, `threads` together or fewer, until all have left it.

        Those that are busy come later or not at all: nobody waits for them. Raises what `work` raises in any of them.
        """
        shared = _Shared(work)
        try:
            self._call(shared.help, min(threads - 1, self._most))
            work()
        finally:
            shared.close()
        error, shared.error = shared.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # whose traceback holds this frame, and with it what was copied

    def end(self) -> None:
        """Let the threads end; others are started when they are called."""
        with self._lock:
            self._calls.put(None)
            self._calls = SimpleQueue()
            self._started = 0

    def _call(self, work: Work, count: int) -> None:
        with self._lock:
            while self._started < count:
                thread = threading.Thread(
                    target=_serve, args=(self._calls,), name="nn_runtime opencl copies", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # there is no room for one more, or the interpreter is ending
                    break
                self._started += 1
            for _ in range(min(count, self._started)):
                self._calls.put(work)


def _serve(calls: SimpleQueue[Work | None]) -> None:
    while (work := calls.get()) is not None:
        work()
        del work  # and with it what went wrong
    calls.put(None)  # for the next thread


class _Shared:
    """Work that others may join until it is closed. error: what it raised in one of them."""

    def __init__(self, work: Work) -> None:
        self._work: Work | None = work
        """None when it is closed: those who come later hold nothing of it."""
        self._changed = threading.Condition()
        self._inside = 0
        self.error: BaseException | None = None

    def help(self) -> None:
        """Join in, unless it is over."""
        with self._changed:
            work = self._work
            if work is None:
                return
            self._inside += 1
        try:
            work()
        except BaseException as error:
            self.error = error
        finally:
            del work
            with self._changed:
                self._inside -= 1
                self._changed.notify()

    def close(self) -> None:
        """Let nobody in any more and wait for those inside, interrupts or not: they use the caller's memory."""
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                with self._changed:
                    self._work = None
                    while self._inside:
                        self._changed.wait()
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
