# SPDX-License-Identifier: Apache-2.0
"""What one OpenCL device holds in this process: context, queues, programs, constants, the watchdog of arenas.

One per device, owned by the driver's Device and shared by its prepared models and buffers.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyopencl as cl

from gpu_driver.programs import ProgramCache
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from gpu_driver.device_profile import DeviceProfile
    from nn_runtime.operand import Array

IDLE_SECONDS = 10.0
"""How long memory for temporaries is kept after the last execution."""


class DeviceConstant:
    """Constant data on the device, shared by everybody who packed the same bytes."""

    def __init__(self, buffer: cl.Buffer) -> None:
        """Keep the buffer."""
        self.buffer = buffer


class Releases(Protocol):
    """Something whose device memory may be given back while it is idle."""

    def release_idle(self, before: float) -> bool:
        """Give memory back that was last used before `before` (time.monotonic seconds); return whether any is left."""


class DeviceContext:
    """OpenCL objects of one device in one process; raises HalError(DEVICE_UNAVAILABLE) in a forked child."""

    def __init__(self, device: cl.Device, profile: DeviceProfile) -> None:
        """Open the context and its two queues, one of them with profiling."""
        self.profile = profile
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.profiling_queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.programs = ProgramCache(self.context, profile)
        self._constants: weakref.WeakValueDictionary[bytes, DeviceConstant] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._watchdog = Watchdog()

    def check_process(self) -> None:
        """Refuse a child process that inherited the context by fork."""
        if os.getpid() != self._process:
            raise HalError(
                ErrorStatus.DEVICE_UNAVAILABLE,
                f"{self.profile.name}: opened before this process was forked; OpenCL does not survive a fork: "
                "start workers with 'spawn', or open the device in the child",
            )

    def constant(self, data: Array) -> DeviceConstant:
        """Return the device's copy of constant data, uploaded once for equal bytes."""
        data = np.ascontiguousarray(data)
        key = hashlib.sha256(data.reshape(-1).view(np.uint8).data).digest()
        with self._lock:
            found = self._constants.get(key)
            if found is None:
                flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
                hostbuf = data if data.nbytes else np.zeros(1, np.uint8)
                found = DeviceConstant(cl.Buffer(self.context, flags, hostbuf=hostbuf))
                self._constants[key] = found
            return found

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return a new read-write buffer (of at least one byte)."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(1, size_bytes))

    def watch(self, holder: Releases) -> None:
        """Have an idle holder's memory given back after IDLE_SECONDS."""
        self._watchdog.watch(holder)


class Watchdog:
    """One daemon thread per device, alive only while somebody holds memory that may be given back."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._holders: weakref.WeakSet[Releases] = weakref.WeakSet()
        self._running = False

    def watch(self, holder: Releases) -> None:
        """Add a holder, and start the thread if it is not running."""
        with self._lock:
            self._holders.add(holder)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="nn_runtime opencl watchdog", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(IDLE_SECONDS / 4)
            before = time.monotonic() - IDLE_SECONDS
            with self._lock:
                holders = list(self._holders)
            for holder in holders:
                if not holder.release_idle(before):
                    with self._lock:
                        self._holders.discard(holder)
            del holders
            with self._lock:
                if not self._holders:
                    self._running = False
                    return


def hal_error(error: cl.Error, doing: str) -> HalError:
    """Return the HalError for an OpenCL error: exhausted resources apart from general failures."""
    exhausted = isinstance(error, cl.MemoryError)
    status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if exhausted else ErrorStatus.GENERAL_FAILURE
    return HalError(status, f"{doing}: {error}")
