# SPDX-License-Identifier: Apache-2.0
"""Device memory behind a memory-domain buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

if TYPE_CHECKING:
    from gpu_driver.context import DeviceContext
    from nn_runtime.operand import Array


class DeviceStorage:
    """An OpenCL buffer as the storage of a ManagedBuffer (Storage); data is dense and row-major."""

    def __init__(self, device: DeviceContext, size_bytes: int) -> None:
        """Allocate, unless the size is not known yet (0)."""
        self._device = device
        self._size_bytes = size_bytes
        self.buffer = device.allocate(size_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Grow; what it held is lost."""
        if size_bytes > self._size_bytes:
            self.buffer = self._device.allocate(size_bytes)
            self._size_bytes = size_bytes

    def read(self, destination: Array) -> None:
        """Copy the first bytes to the host."""
        if destination.nbytes:
            cl.enqueue_copy(self._device.queue, destination, self.buffer)

    def write(self, source: Array) -> None:
        """Copy the first bytes from the host."""
        if source.nbytes:
            cl.enqueue_copy(self._device.queue, self.buffer, source)

    def close(self) -> None:
        """Free the buffer once the commands that use it are done."""
        self.buffer.release()
        self._size_bytes = 0
