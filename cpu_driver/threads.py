# SPDX-License-Identifier: Apache-2.0
"""How many threads the linear algebra library behind numpy uses while a model runs.

One. OpenBLAS's threads wait for each other by spinning: with two on two cores that another process keeps busy,
MobileNet V2 takes 7 to 14 times as long as with one, and 0.8 of the time where nothing else runs. Sums of more than
some 450 terms end in other bits with two threads, so that the number cannot follow what the machine happens to do.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Protocol

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_THREADS = 1


class _Library(Protocol):
    def get_num_threads(self) -> int: ...

    def set_num_threads(self, num_threads: int) -> None: ...


class BlasThreads:
    """Bounds the threads while at least one execution is inside, then gives the process its own number back."""

    def __init__(self) -> None:
        """Nothing is bounded yet."""
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [library.get_num_threads() for library in _libraries()]
                _set([_THREADS] * len(self._before))
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _set(self._before)

    def begin_anew(self) -> None:
        """Bind nothing, as in a process that was forked from one whose executions go on there alone."""
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 0
            _set(self._before)


blas_threads = BlasThreads()
"""The one bound of this process: libraries know one number of threads."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=blas_threads.begin_anew)


def _set(numbers: Sequence[int]) -> None:
    """Set each library's number from whichever thread this is.

    threadpoolctl 3.8 lets a thread that has set a number keep all others from it, until it gives that up.
    """
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)
        give_up = getattr(library, "clear_controlling_thread", None)
        if give_up is not None:
            give_up()


@functools.cache
def _libraries() -> Sequence[_Library]:
    """Return the loaded libraries of linear algebra; numpy has loaded its own by now."""
    libraries: Sequence[_Library] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries
