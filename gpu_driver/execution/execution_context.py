# SPDX-License-Identifier: Apache-2.0
"""What one execution at a time has for itself: device memory, and kernel objects for every segment."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.execution.segment_context import SegmentContext

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.execution.compiled_segment import CompiledSegment


class ExecutionContext:
    """All that one execution at a time needs: memory of boundary operands, one arena, a SegmentContext per segment."""

    def __init__(self, device: DeviceContext) -> None:
        """Hold nothing yet."""
        self._device = device
        self._boundary: dict[int, DeviceBuffer] = {}
        self._arenas: tuple[DeviceBuffer, ...] = ()
        self._segments: dict[CompiledSegment, SegmentContext] = {}
        self._latest: tuple[CompiledSegment, SegmentContext] | None = None
        """The segment that was asked for last: its arena is taken."""
        self._children: dict[object, ExecutionContext] = {}
        self.last_used = time.monotonic()

    def child(self, key: object) -> ExecutionContext:
        """Return the context of a model that an operation of this one refers to."""
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = ExecutionContext(self._device)
        return found

    def segment(self, compiled: CompiledSegment) -> SegmentContext:
        """Return this context's kernel objects for a segment, with the arena taken."""
        if self._latest is not None and self._latest[0] is compiled:
            return self._latest[1]
        found = self._segments.get(compiled)
        if found is None:
            found = self._segments[compiled] = SegmentContext(compiled)
        self._reserve(compiled.arenas.sizes_bytes)
        found.use_arenas(self._arenas)
        self._latest = compiled, found
        return found

    def boundary(self, operand: int, size_bytes: int) -> DeviceBuffer:
        """Return this context's own buffer for a boundary operand, of at least that size."""
        found = self._boundary.get(operand)
        if found is None or found.size_bytes < size_bytes:
            self._boundary.pop(operand, None)
            del found  # before the larger one is made
            found = self._boundary[operand] = self._device.allocate(size_bytes)
        return found

    def retain(self, segments: Collection[CompiledSegment]) -> None:
        """Forget all segments but these."""
        self._latest = None
        self._segments = {compiled: mine for compiled, mine in self._segments.items() if compiled in segments}
        for child in self._children.values():
            child.retain(segments)

    def release_memory(self) -> None:
        """Give all memory back but that of the kernel objects."""
        self._boundary.clear()
        self._drop_arenas()
        for child in self._children.values():
            child.release_memory()

    def clear(self, queue: cl.CommandQueue) -> None:
        """Enqueue filling all memory with zeros."""
        for buffer in (*self._boundary.values(), *self._arenas):
            cl.enqueue_fill_buffer(queue, buffer.handle, np.zeros(1, np.uint8), 0, buffer.size_bytes)

    def _reserve(self, sizes_bytes: tuple[int, ...]) -> None:
        """Have arenas of at least these sizes; segments share them, as they run one after the other."""
        have = [arena.size_bytes for arena in self._arenas]
        if len(have) >= len(sizes_bytes) and all(a >= b for a, b in zip(have, sizes_bytes, strict=False)):
            return
        self._drop_arenas()
        sizes = [max(pair) for pair in itertools.zip_longest(have, sizes_bytes, fillvalue=0)]
        self._arenas = tuple(self._device.allocate(size) for size in sizes)

    def _drop_arenas(self) -> None:
        self._latest = None
        for segment in self._segments.values():
            segment.drop_arenas()
        self._arenas = ()
