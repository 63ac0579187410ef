# SPDX-License-Identifier: Apache-2.0
"""Driver-managed buffers in the process of their driver.

A buffer of a driver that died is allocated again, empty, on the one started anew: at its next copy, or when a request
names its token. The token given out stays; what the driver calls the buffer meanwhile is asked for at each new request.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING

from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.remote_process import HostProcess
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class Allocation:
    """A buffer in a process: our number of it there, and its token."""

    host: HostProcess
    number: int
    token: int


class RemoteBuffer:
    """A driver-managed buffer in the process of its driver (IBuffer)."""

    def __init__(self, allocate: Callable[[], Allocation]) -> None:
        """Allocate; `allocate` is called again when the driver has died. Raises HalError."""
        self._allocate = allocate
        self._lock = threading.Lock()
        self._place(allocate())
        self.token = self._allocation.token
        """As given out, whatever became of the driver since."""

    def copy_to(self, destination: SharedMemory) -> None:
        """Copy the whole buffer out."""
        self._retried(lambda at: at.host.call("copy_to", at.number, at.host.pool_number(destination)))

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        """Fill the whole buffer."""
        self._retried(lambda at: at.host.call("copy_from", at.number, at.host.pool_number(source), dimensions))

    def close(self) -> None:
        """Free the buffer and its token."""
        if self._released.detach() is not None:
            with contextlib.suppress(HalError):
                self._allocation.host.call("close", self._allocation.number)

    def living(self) -> Allocation:
        """Return where the buffer is, allocated again if its driver has died; raises HalError."""
        if not self._allocation.host.dead:
            return self._allocation
        with self._lock:
            if self._allocation.host.dead:
                if not self._released.alive:
                    raise HalError(ErrorStatus.INVALID_ARGUMENT, f"buffer {self.token} is closed")
                allocation = self._allocate()
                self._released.detach()
                self._place(allocation)
            return self._allocation

    def _retried(self, call: Callable[[Allocation], object]) -> None:
        """Call; if the driver dies of it, once more with a buffer on a new one."""
        at = self.living()
        try:
            call(at)
        except HalError as error:
            if error.status != ErrorStatus.DEAD_OBJECT or not at.host.dead:
                raise
            call(self.living())

    def _place(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._released = weakref.finalize(self, allocation.host.forget, allocation.number)
        self._released.atexit = False
