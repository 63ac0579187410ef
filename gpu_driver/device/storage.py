# SPDX-License-Identifier: Apache-2.0
"""Device memory behind a memory-domain buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from gpu_driver.device.errors import hal_error
from gpu_driver.device.pinned import staging_of
from nn_runtime.hal.types import ErrorStatus, HalError, Priority

if TYPE_CHECKING:
    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from nn_runtime.operand import Array


class DeviceStorage:
    """An OpenCL buffer as the storage of a ManagedBuffer (Storage); data is dense and row-major."""

    def __init__(self, device: DeviceContext, size_bytes: int) -> None:
        """Allocate, unless the size is not known yet (0)."""
        self._device = device
        self._buffer: DeviceBuffer | None = device.allocate(size_bytes)

    @property
    def buffer(self) -> DeviceBuffer:
        """The memory; raises HalError once it is closed."""
        if self._buffer is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "the buffer is closed")
        return self._buffer

    def reserve(self, size_bytes: int) -> None:
        """Grow; what it held is lost."""
        if size_bytes > self.buffer.size_bytes:
            self._buffer = self._device.allocate(size_bytes)

    def read(self, destination: Array) -> None:
        """Copy the first bytes to the host, in turn with the executions."""
        self._transfer(destination, is_read=True)

    def write(self, source: Array) -> None:
        """Copy the first bytes from the host, in turn with the executions."""
        self._transfer(source, is_read=False)

    def close(self) -> None:
        """Let go of the memory; executions that have been enqueued still hold it, others on their way fail."""
        self._buffer = None

    def _transfer(self, data: Array, *, is_read: bool) -> None:
        buffer, device = self.buffer, self._device
        device.check_process()
        if not data.nbytes:
            return
        staging = staging_of(device.staging, data.nbytes)

        def transfer() -> None:
            if staging is None:
                copy = buffer.read if is_read else buffer.write
                copy(device.queue, data).wait()
            else:
                events: list[cl.Event] = []
                staged = staging.read if is_read else staging.write
                staged(device.queue, buffer, data, lambda _, event: events.append(event))
                events[-1].wait()

        try:
            device.executions.slot(Priority.MEDIUM).during(transfer)
        except cl.Error as error:
            raise hal_error(error, f"transfer of {data.nbytes} bytes") from error
