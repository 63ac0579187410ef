# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory of the host, through which arrays go to a GPU with memory of its own, and back.

A GPU fetches by itself, at the speed of its bus, only from memory that the host cannot move. Of other memory the driver
makes copies, by one thread and through a small buffer. Here an array goes through pieces of page-locked memory: several
threads fill them, and while they fill the next ones the GPU fetches the last; the other way round for what comes back.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import pyopencl as cl

from gpu_driver.device.copy_threads import CopyThreads
from gpu_driver.processors import usable_processors

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.watchdog import Watchdog
    from nn_runtime.operand import Array

Enqueued: TypeAlias = "Callable[[int, cl.Event], None]"
"""Takes the bytes and the event of each transfer, in the order in which they are enqueued."""

PIECE_BYTES = 4 << 20
"""Of a piece at most. There and back, 38.5 MB each: 4.6 ms, by pieces of 2 MiB 5.3, of 1 MiB 8.1 (H100, PCIe 5)."""
MOST_PIECES = 16
"""Of a context, so that it holds 64 MiB of page-locked memory at most, whatever is transferred at once."""
LEAST_BYTES = 8 << 20
"""What is smaller the driver is given as it is. By pieces 19 MB take 0.6 of the time and 38.5 MB 0.5, but 2.4 MB 1.1 to
1.7 times as long: waking threads takes longer than their copying (H100)."""
THREAD_BYTES = 1 << 20
"""What each thread copies at least: that takes it 0.1 ms, twice as long as it takes to wake it."""
MOST_THREADS = 4
"""That copy one array, the caller among them; two took 1.3 times as long, eight 1.2 times (16 cores, PCIe 5)."""
_AHEAD = 2
"""Pieces on their way back for each thread that copies: one is copied while the next arrives."""
_LOST_SECONDS = 0.1
"""After which whoever waits for a piece looks again: nobody calls when an interrupt has had somebody lose one."""
_ALIGNMENT = 4096
"""Of where in an array a piece begins."""
_COMPLETE = cl.command_execution_status.COMPLETE
"""Commands that failed have less, those that have not ended yet more."""


class PinnedStaging:
    """The pieces of a context and the threads that copy: made as they are needed, given back when they are idle.

    Safe for threads: nobody gets a piece whose transfer still runs. What is transferred the buffers count; the pieces
    themselves are the host's memory.
    """

    def __init__(self, context: cl.Context, device: cl.Device, watchdog: Watchdog) -> None:
        """Hold nothing yet."""
        self._context = context
        self._queue = cl.CommandQueue(context, device)
        """Where pieces are mapped, without waiting for what the others compute."""
        self._watchdog = watchdog
        self._threads = CopyThreads(min(MOST_THREADS, usable_processors()) - 1)
        self._pieces: weakref.WeakSet[Piece] = weakref.WeakSet()
        """All of them; one that an interrupt had somebody lose goes by itself."""
        self._free: deque[Piece] = deque()
        """The one that was given back first is the first."""
        self._changed = threading.Condition()
        self._last_used = time.monotonic()

    def write(self, queue: cl.CommandQueue, buffer: DeviceBuffer, data: Array, enqueued: Enqueued) -> None:
        """Enqueue copying contiguous `data` to the first bytes of a buffer; then `data` may change. Raises cl.Error."""
        _Write(self, queue, buffer, data, enqueued).run(self._threads)

    def read(self, queue: cl.CommandQueue, buffer: DeviceBuffer, data: Array, enqueued: Enqueued) -> None:
        """Copy the first bytes of a buffer to contiguous `data`, and wait until they are there; raises cl.Error."""
        _Read(self, queue, buffer, data, enqueued).run(self._threads)

    def release_idle(self, before: float) -> bool:
        """Give pieces and threads back if none was used since `before`; return whether any piece is left."""
        with self._changed:
            if self._last_used < before:
                self._free = deque(piece for piece in self._free if not piece.is_idle)
                with suppress(cl.Error):  # of a device that is lost
                    self._queue.flush()  # so that the memory goes now, not with the next piece
            is_left = bool(self._pieces)
        if not is_left:
            self._threads.end()
        return is_left

    def take(self, is_wanted: Callable[[], bool]) -> Piece | None:
        """Return a piece for a thread that has none, waiting until there is one; raises cl.Error.

        None once it is not wanted any more: whom an interrupt had lose a piece may wait for those who want another.
        """
        with self._changed:
            while (piece := self._found()) is None and is_wanted():
                self._changed.wait(_LOST_SECONDS)
        return piece

    def take_another(self) -> Piece | None:
        """Return a piece for a thread that has some, if there is one: who waits with them may wait for ever."""
        with self._changed:
            piece = self._found()
            if piece is None or piece.is_idle:
                return piece
            self._free.appendleft(piece)
            return None

    def give_back(self, piece: Piece) -> None:
        """Let others have a piece, once its transfer is over."""
        with self._changed:
            self._free.append(piece)
            self._last_used = time.monotonic()
            self._changed.notify()

    def _found(self) -> Piece | None:
        """Return the piece that has rested longest, rather a new one where that still runs; None if all are taken."""
        may_grow = len(self._pieces) < MOST_PIECES
        if self._free and (self._free[0].is_idle or not may_grow):
            return self._free.popleft()
        if not may_grow:
            return None
        try:
            piece = Piece(self._context, self._queue)
        except cl.Error:
            if not self._pieces:
                raise
            return self._free.popleft() if self._free else None
        self._pieces.add(piece)
        self._watchdog.watch(self)
        return piece


class Piece:
    """Page-locked memory. event: of the transfer that used it last."""

    __slots__ = ("__weakref__", "bytes", "event")

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        """Take memory; raises cl.Error."""
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, PIECE_BYTES)
        how = cast("cl.map_flags", cl.map_flags.READ | cl.map_flags.WRITE)
        self.bytes: Array
        self.bytes, _ = cl.enqueue_map_buffer(queue, buffer, how, 0, (PIECE_BYTES,), np.dtype(np.uint8))
        self.event: cl.Event | None = None

    @property
    def is_idle(self) -> bool:
        """Whether its last transfer is over."""
        return self.event is None or self.event.command_execution_status <= _COMPLETE

    def wait(self) -> None:
        """Wait until its last transfer is over; that it failed is a matter of the execution that it was for."""
        if self.event is not None:
            with suppress(cl.Error):
                self.event.wait()


class _Transfer:
    """One array on its way, in parts; several threads do what `work` says."""

    def __init__(
        self, staging: PinnedStaging, queue: cl.CommandQueue, buffer: DeviceBuffer, data: Array, enqueued: Enqueued
    ) -> None:
        self._staging = staging
        self._queue = queue
        self._buffer = buffer
        self._data = data.reshape(-1).view(np.uint8)
        self._enqueued = enqueued
        self._lock = threading.Lock()
        self._thread_count = max(1, min(MOST_THREADS, data.nbytes // THREAD_BYTES))
        self._parts = deque(parts_of(data.nbytes, self._thread_count))
        """Those left to be transferred; the lock is held while one is taken or its transfer enqueued."""
        self._has_failed = False

    def work(self) -> None:
        """Do all that is left, or what others leave of it."""
        try:
            self._work()
        except BaseException:
            self._has_failed = True
            with self._lock:  # nobody is just taking one
                self._parts.clear()  # the others need not go on
            raise

    def _work(self) -> None:
        raise NotImplementedError

    def _is_wanted(self) -> bool:
        return not self._has_failed

    def _next_part(self) -> slice | None:
        with self._lock:
            return self._parts.popleft() if self._parts else None

    def _enqueue(
        self, copy: Callable[[cl.CommandQueue, Array, int], cl.Event], memory: Array, piece: Piece, start: int
    ) -> cl.Event:
        """Enqueue a transfer between some memory of a piece and the buffer from `start`."""
        try:
            with self._lock:
                event = piece.event = copy(self._queue, memory, start)
                self._enqueued(memory.nbytes, event)
            self._queue.flush()  # it shall run while others are copied
        except BaseException:
            self._queue.finish()  # it may run, and nobody else shall have the piece meanwhile
            raise
        return event


class _Write(_Transfer):
    """An array on its way to the device."""

    def run(self, threads: CopyThreads) -> None:
        """Copy and enqueue all."""
        threads.share(self.work, self._thread_count)

    def _work(self) -> None:
        while (part := self._next_part()) is not None:
            piece = self._staging.take(self._is_wanted)
            if piece is None:
                return
            try:
                piece.wait()
                memory = piece.bytes[: part.stop - part.start]
                np.copyto(memory, self._data[part])
                self._enqueue(self._buffer.write, memory, piece, part.start)
            finally:
                self._staging.give_back(piece)


class _Read(_Transfer):
    """An array on its way back."""

    def run(self, threads: CopyThreads) -> None:
        """Enqueue and copy all."""
        self._arriving: deque[tuple[slice, Piece, cl.Event]] = deque()
        try:
            piece = self._staging.take(self._is_wanted)
            while piece is not None:
                self._fetch(piece)
                may_have_more = self._parts and len(self._arriving) < _AHEAD * self._thread_count
                piece = self._staging.take_another() if may_have_more else None
            self._arriving[0][-1].wait()  # alone: what makes the array may take long
            threads.share(self.work, self._thread_count)
        finally:
            for _, piece, _ in self._arriving:  # it failed; who gets one waits for its transfer
                self._staging.give_back(piece)

    def _work(self) -> None:
        while (arrival := self._next_arrival()) is not None:
            part, piece, event = arrival
            try:
                event.wait()
                np.copyto(self._data[part], piece.bytes[: part.stop - part.start])
            except BaseException:
                self._staging.give_back(piece)
                raise
            self._fetch(piece)

    def _next_arrival(self) -> tuple[slice, Piece, cl.Event] | None:
        with self._lock:
            return self._arriving.popleft() if self._arriving else None

    def _fetch(self, piece: Piece) -> None:
        """Have the next part arrive in a piece, or give that back where none is left."""
        part = self._next_part()
        if part is None:
            self._staging.give_back(piece)
            return
        try:
            piece.wait()
            event = self._enqueue(self._buffer.read, piece.bytes[: part.stop - part.start], piece, part.start)
        except BaseException:
            self._staging.give_back(piece)
            raise
        self._arriving.append((part, piece, event))


def staging_of(staging: PinnedStaging | None, size_bytes: int) -> PinnedStaging | None:
    """Return what a device has for an array of that size, None where the array gains nothing by the detour."""
    return staging if size_bytes >= LEAST_BYTES else None


def parts_of(size_bytes: int, threads: int) -> list[slice]:
    """Return the parts that an array goes in: as many for each of the threads, none larger than a piece."""
    count = threads * -(-size_bytes // (threads * PIECE_BYTES))
    part_bytes = -(-size_bytes // (count * _ALIGNMENT)) * _ALIGNMENT
    return [slice(start, min(start + part_bytes, size_bytes)) for start in range(0, size_bytes, part_bytes)]
