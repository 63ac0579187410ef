# SPDX-License-Identifier: Apache-2.0
"""Buffers in device memory, every one counted from its making to its end, and every byte moved to or from them."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING

import pyopencl as cl

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of one device in this process: on it now, on it at most so far, moved to it, and moved back."""

    allocated_bytes: int = 0
    peak_bytes: int = 0
    written_bytes: int = 0
    read_bytes: int = 0


class Accounts:
    """Counts the bytes of one device. Safe for threads, and for buffers that end inside any of its methods."""

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        """Sizes not taken off yet: a buffer may end wherever garbage is collected, so its end takes no lock."""
        self._allocated = 0
        self._peak = 0
        self._written = 0
        self._read = 0

    @property
    def stats(self) -> MemoryStats:
        """The counts so far."""
        with self._lock:
            self._settle()
            return MemoryStats(self._allocated, self._peak, self._written, self._read)

    def allocated(self, size_bytes: int) -> None:
        """Count a new buffer."""
        with self._lock:
            self._settle()
            self._allocated += size_bytes
            self._peak = max(self._peak, self._allocated)

    def freed(self, size_bytes: int) -> None:
        """Count a buffer's end; takes no lock."""
        self._freed.append(size_bytes)

    def written(self, size_bytes: int) -> None:
        """Count bytes moved to the device."""
        with self._lock:
            self._written += size_bytes

    def read(self, size_bytes: int) -> None:
        """Count bytes moved from the device."""
        with self._lock:
            self._read += size_bytes

    def _settle(self) -> None:
        while self._freed:
            self._allocated -= self._freed.popleft()


_numbers = itertools.count()


class DeviceBuffer:
    """An OpenCL buffer that is counted until its last reference goes; no other ever has its `number`.

    There is no explicit release: an execution that still uses a buffer holds it, so that another thread cannot free it.
    """

    __slots__ = ("__weakref__", "_accounts", "handle", "number", "size_bytes")

    def __init__(self, accounts: Accounts, handle: cl.Buffer, size_bytes: int) -> None:
        """Count it."""
        self.handle = handle
        self.number = next(_numbers)
        self.size_bytes = size_bytes
        self._accounts = accounts
        accounts.allocated(size_bytes)

    def __del__(self) -> None:
        """Take it off the count."""
        if hasattr(self, "_accounts"):
            self._accounts.freed(self.size_bytes)

    def write(self, queue: cl.CommandQueue, data: Array, offset: int = 0) -> cl.Event:
        """Enqueue a copy of contiguous `data` to the bytes from `offset`.

        Keep the event until the copy is done: one that goes earlier waits, and the whole interpreter with it.
        """
        event = cl.enqueue_copy(queue, self.handle, data, dst_offset=offset, is_blocking=False)
        self._accounts.written(data.nbytes)
        return event

    def read(self, queue: cl.CommandQueue, data: Array, offset: int = 0) -> cl.Event:
        """Enqueue a copy of the bytes from `offset` to contiguous `data`; the event is kept as for `write`."""
        event = cl.enqueue_copy(queue, data, self.handle, src_offset=offset, is_blocking=False)
        self._accounts.read(data.nbytes)
        return event
