# SPDX-License-Identifier: Apache-2.0
"""A driver-managed buffer of HAL 1.3 as a canonical one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.versions.callbacks import checked, guarded

if TYPE_CHECKING:
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.versions import v1_3
    from nn_runtime.operand import Dimensions


class AdaptedBuffer:
    """A driver-managed buffer of HAL 1.3 (IBuffer)."""

    def __init__(self, driver: v1_3.IBuffer) -> None:
        """Keep the driver's object, which goes with this one."""
        self._driver: v1_3.IBuffer | None = driver

    def copy_to(self, destination: SharedMemory) -> None:
        """Copy the whole buffer out."""
        driver = self._open()
        checked(guarded(lambda: driver.copy_to(destination), "copy_to"), "copy_to")

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        """Fill the whole buffer."""
        driver = self._open()
        checked(guarded(lambda: driver.copy_from(source, dimensions), "copy_from"), "copy_from")

    def close(self) -> None:
        """Let the driver's object go."""
        self._driver = None

    def _open(self) -> v1_3.IBuffer:
        if self._driver is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "the buffer is closed")
        return self._driver
