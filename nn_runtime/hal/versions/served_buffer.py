# SPDX-License-Identifier: Apache-2.0
"""A canonical buffer behind the interface of HAL 1.3 (see `server`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.versions.conversion import status_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.hal.interfaces import IBuffer
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.operand import Dimensions


class ServedBuffer:
    """A driver-managed buffer (v1_3.IBuffer); freed with this object."""

    def __init__(self, inner: IBuffer) -> None:
        """Keep the buffer."""
        self._inner = inner

    def copy_to(self, destination: SharedMemory) -> int:
        """Copy out."""
        return _status_of(lambda: self._inner.copy_to(destination))

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> int:
        """Copy in."""
        return _status_of(lambda: self._inner.copy_from(source, dimensions))

    def __del__(self) -> None:
        self._inner.close()


def _status_of(call: Callable[[], None]) -> int:
    try:
        call()
    except HalError as error:
        return status_to(error.status, FeatureLevel.HAL_1_3)
    return ErrorStatus.NONE
