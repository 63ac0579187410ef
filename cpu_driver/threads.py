# SPDX-License-Identifier: Apache-2.0
"""How many threads the linear algebra library behind numpy uses while a model runs.

OpenBLAS's threads wait for each other by spinning: where other processes keep the cores busy, a product with as many
threads as cores takes tens of times as long as with one. With one it costs little on an idle machine, since most
products of a network are small.
"""

from __future__ import annotations

import functools
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
                for library in _libraries():
                    library.set_num_threads(_THREADS)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for library, threads in zip(_libraries(), self._before, strict=True):
                    library.set_num_threads(threads)


blas_threads = BlasThreads()
"""The one bound of this process: libraries know one number of threads."""


@functools.cache
def _libraries() -> Sequence[_Library]:
    """Return the loaded libraries of linear algebra; numpy has loaded its own by now."""
    libraries: Sequence[_Library] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries
