# SPDX-License-Identifier: Apache-2.0
"""What one OpenCL device holds in this process: context, queues, programs, constants, the watchdog of arenas.

One per device, owned by the driver's Device and shared by its prepared models and buffers.

Order of release. Objects hold what they need: prepared models and buffers this context, this context its queues and
programs; OpenCL counts references itself, so they may go in any order. At the end of the interpreter the executions,
preparations and transfers that run are waited for and no more are let in; a thread inside OpenCL when the interpreter
ends would abort the process. Then programs are stored that were not in the cache (programs.py: `store_kept`).
"""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.device.buffers import readable_bytes
from gpu_driver.device.device_memory import Accounts, DeviceBuffer
from gpu_driver.device.errors import hal_error, is_exhausted
from gpu_driver.device.inline import one_thread
from gpu_driver.device.pinned import PinnedStaging
from gpu_driver.device.programs import ProgramCache
from gpu_driver.device.scheduler import Scheduler
from gpu_driver.device.watchdog import Watchdog
from gpu_driver.interrupts import interrupts_held
from nn_runtime.hal.memory import PAGE_BYTES, pages_of_zeros
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_driver.device.programs import CacheStats
    from gpu_driver.device.watchdog import Releases
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Packed
    from gpu_driver.launch import WorkSize
    from nn_runtime.operand import Array

IDLE_SECONDS = 10.0
"""How long memory for temporaries is kept after the last execution."""
LOW_POWER_IDLE_SECONDS = 0.1
"""The same where power is to be saved: taking memory again for every run costs more than the run (decision 0009)."""
MAX_EXECUTIONS = 4
"""Executions at once on one device; more wait by priority. They share one queue, so more would gain nothing."""
EXIT_SECONDS = 30.0
"""How long the end of the interpreter waits for what still runs."""
STORE_SECONDS = 10.0
"""How long it may take to store programs; the one that is begun then is ended."""

_COMPLETE = cl.command_execution_status.COMPLETE
"""Commands that failed have less, those that have not ended yet more."""
_READ = cl.mem_flags.USE_HOST_PTR | cl.mem_flags.READ_ONLY
_WRITTEN = cl.mem_flags.USE_HOST_PTR | cl.mem_flags.READ_WRITE


class DeviceContext:
    """OpenCL objects of one device in one process; raises HalError(DEVICE_UNAVAILABLE) in a forked child."""

    def __init__(
        self,
        device: cl.Device,
        profile: DeviceProfile,
        idle_seconds: float = IDLE_SECONDS,
        *,
        inline: cl.Device | None = None,
        within: DeviceContext | None = None,
    ) -> None:
        """Open the context and its two queues, one of them with profiling.

        `inline`: a device of the same memory that computes in the calling thread. `within`: whose OpenCL context is
        used, of which the device is the inline one.
        """
        self._profile = profile
        self._inline_device = inline
        self._inline: DeviceContext | None = None
        # PoCL's device without threads gives wrong results or hangs where two threads use it at once.
        self.executions = Scheduler(MAX_EXECUTIONS if within is None else 1)
        self.preparations = Scheduler(1) if within is None else self.executions
        self.accounts: Accounts = Accounts() if within is None else within.accounts
        self.host_accounts: Accounts = Accounts() if within is None else within.host_accounts
        """Of host memory that is used in place."""
        self.process = os.getpid()

        def open_() -> None:
            devices = [device] if inline is None else [device, inline]
            with interrupts_held():  # the driver's threads start processes
                self.context: cl.Context = cl.Context(devices) if within is None else within.context
            self.queue = cl.CommandQueue(self.context, device)
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self.profiling_queue = cl.CommandQueue(self.context, device, properties=profiling)
            _open_contexts.add(self)

        _opening.slot(Priority.HIGH).during(open_)
        self._latest_persistent: tuple[cl.CommandQueue, cl.Event] | None = None
        self._persistent_lock = threading.Lock()
        self.programs = ProgramCache(self.context, profile, device=device)
        self._constants: weakref.WeakValueDictionary[bytes, DeviceBuffer] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._watchdogs: Mapping[ExecutionPreference, Watchdog] = (
            _watchdogs(idle_seconds) if within is None else within._watchdogs
        )
        watchdog = self._watchdogs[ExecutionPreference.FAST_SINGLE_ANSWER]
        self.staging = PinnedStaging(self.context, device, watchdog) if profile.is_discrete else None
        """Through which large arrays are transferred, where that is faster."""

    @property
    def profile(self) -> DeviceProfile:
        """What launchers may know of the device."""
        return self._profile

    def set_profile(self, profile: DeviceProfile) -> None:
        """Use a profile for models prepared from now on."""
        with self._lock:
            self._profile = profile
            if self._inline is not None:
                self._inline.set_profile(one_thread(profile))

    def enqueue_persistent(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: WorkSize, local_size: WorkSize
    ) -> cl.Event:
        """Enqueue a launch whose groups wait for each other, behind the last such one, whatever queue that is in.

        Two at once might each have a part of the device, and wait for ever. Raises cl.Error.
        """
        with self._persistent_lock:
            latest = self._latest_persistent
            before = None
            if latest is not None and latest[0] != queue and latest[1].command_execution_status > _COMPLETE:
                latest[0].flush()
                before = [latest[1]]
            event = cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, wait_for=before)
            self._latest_persistent = queue, event
        return event

    @property
    def has_inline(self) -> bool:
        """Whether there is a device of the same memory that computes in the calling thread."""
        return self._inline_device is not None

    @property
    def inline(self) -> DeviceContext | None:
        """The same memory with a device that computes in the calling thread, if there is one; opened when needed."""
        if self._inline_device is None:
            return None
        with self._lock:
            if self._inline is None:
                profile = one_thread(self._profile)
                self._inline = DeviceContext(self._inline_device, profile, within=self)
            return self._inline

    @property
    def program_stats(self) -> CacheStats:
        """Counts of the programs of both devices."""
        with self._lock:
            inline = self._inline
        return self.programs.stats if inline is None else self.programs.stats.plus(inline.programs.stats)

    def check_process(self) -> None:
        """Refuse a child process that inherited the context by fork."""
        if os.getpid() != self.process:
            check_process(self.profile.name, self.process)

    def constant(self, packed: Packed) -> DeviceBuffer:
        """Return the device's copy of constant data, uploaded once for equal bytes; raises HalError as `allocate`."""
        parts = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in packed.parts]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part.data)
        key = digest.digest()
        with self._lock:
            found = self._constants.get(key)
            if found is None:
                found = self._constants[key] = self._allocate(parts if packed.size_bytes else 1)
            return found

    def allocate(self, size_bytes: int) -> DeviceBuffer:
        """Return a new read-write buffer (of at least one byte); idle memory is given back where that is needed.

        Raises HalError(RESOURCE_EXHAUSTED_PERSISTENT) where it can never fit, (RESOURCE_EXHAUSTED_TRANSIENT) else.
        """
        return self._allocate(max(1, size_bytes))

    def in_place(self, data: Array, *, is_written: bool) -> DeviceBuffer | None:
        """Return host memory as a buffer where the device uses it in place: whole pages, at least at its beginning."""
        usable = self.profile.uses_host_memory and data.nbytes and data.ctypes.data % PAGE_BYTES == 0
        if not usable or not (data.flags.writeable or not is_written):
            return None
        return self._wrapped(data, _WRITTEN if is_written else _READ)

    def wrapped(self, data: Array) -> DeviceBuffer:
        """Return writable host memory as a buffer of a device that uses such memory in place, however it is aligned.

        Intel's runtime copies memory that is to be read only, unless it begins on a page.
        """
        return self._wrapped(data, _WRITTEN)

    def zeros(self, size_bytes: int) -> tuple[DeviceBuffer, Array | None]:
        """Return a new buffer of zeros, and the same memory as the host sees it where that is used in place.

        Raises as `allocate`.
        """
        data = pages_of_zeros(size_bytes)
        if self.profile.uses_host_memory:
            return self._made(partial(cl.Buffer, self.context, _WRITTEN, hostbuf=data), size_bytes), data
        buffer = self.allocate(size_bytes)
        buffer.write(self.queue, data).wait()
        return buffer, None

    def check_room(self, size_bytes: int, what: str) -> None:
        """Raise HalError(RESOURCE_EXHAUSTED_PERSISTENT) for what the device could not hold if it were empty."""
        if size_bytes > self.profile.global_mem_bytes:
            has = readable_bytes(self.profile.global_mem_bytes)
            raise HalError(
                ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
                f"{what} needs {readable_bytes(size_bytes)}, the device has {has}",
            )

    def watch(self, holder: Releases, preference: ExecutionPreference) -> None:
        """Have a holder's memory given back once it has been idle as long as the preference says, or it is needed."""
        self._watchdogs[preference].watch(holder)

    def shut_down(self) -> None:
        """Let nobody in any more, wait for those inside, store programs; for the end of the interpreter."""
        end = time.monotonic() + EXIT_SECONDS
        users = dict.fromkeys((self.executions, self.preparations))
        have_left = [one.close(max(0.0, end - time.monotonic())) for one in users]
        if all(have_left):
            self.queue.finish()
            self.profiling_queue.finish()
            self.programs.store_kept(STORE_SECONDS)

    def _wrapped(self, data: Array, flags: int) -> DeviceBuffer:
        try:
            return DeviceBuffer(self.host_accounts, cl.Buffer(self.context, flags, hostbuf=data), data.nbytes)
        except cl.Error as error:
            raise hal_error(error, f"host memory of {readable_bytes(data.nbytes)}") from error

    def _allocate(self, content: int | Sequence[Array]) -> DeviceBuffer:
        """Return a buffer of a size, or one that holds constant data, the bytes of several arrays."""
        if isinstance(content, int):
            return self._made(partial(self._new_handle, content), content)
        buffer = self._made(partial(self._new_handle, content), sum(part.nbytes for part in content))
        self.accounts.written(buffer.size_bytes)
        return buffer

    def _made(self, new_handle: Callable[[], cl.Buffer], size_bytes: int) -> DeviceBuffer:
        """Return a buffer around a new handle, tried again without idle memory where there is no room for it."""
        self._make_room(size_bytes)
        try:
            handle = new_handle()
        except cl.Error as error:
            if not is_exhausted(error):
                raise hal_error(error, "allocation") from error
            self._release_idle()
            try:
                handle = new_handle()
            except cl.Error as again:
                raise hal_error(again, f"allocation of {readable_bytes(size_bytes)}") from again
        return DeviceBuffer(self.accounts, handle, size_bytes)

    def _make_room(self, size_bytes: int) -> None:
        """Give idle memory back where a buffer needs that; raises HalError where there is no room for it."""
        limit = self.profile.max_alloc_bytes
        if size_bytes > limit:
            raise HalError(
                ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
                f"needs {readable_bytes(size_bytes)}, the device allows {readable_bytes(limit)} for one buffer",
            )
        if not self._has_room(size_bytes):
            self._release_idle()
        if not self._has_room(size_bytes):
            used, has = self.accounts.stats.allocated_bytes, self.profile.global_mem_bytes
            raise HalError(
                ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
                f"needs {readable_bytes(size_bytes)}, {readable_bytes(used)} of {readable_bytes(has)} are in use",
            )

    def _release_idle(self) -> None:
        for watchdog in self._watchdogs.values():
            watchdog.release_all()

    def _has_room(self, size_bytes: int) -> bool:
        return self.accounts.stats.allocated_bytes + size_bytes <= self.profile.global_mem_bytes

    def _new_handle(self, content: int | Sequence[Array]) -> cl.Buffer:
        if isinstance(content, int):
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, content)
        size_bytes = sum(part.nbytes for part in content)
        handle = cl.Buffer(self.context, cl.mem_flags.READ_ONLY, size_bytes)
        # Parts go where the device will read them, without being put together before.
        how = cl.map_flags.WRITE_INVALIDATE_REGION
        mapped, _ = cl.enqueue_map_buffer(self.queue, handle, how, 0, (size_bytes,), np.dtype(np.uint8))
        np.concatenate(content, out=mapped)
        mapped.base.release(self.queue).wait()
        return handle


def check_process(name: str, process: int) -> None:
    """Raise HalError(DEVICE_UNAVAILABLE) in a child forked from the process where OpenCL's objects of a device are."""
    if os.getpid() != process:
        raise HalError(
            ErrorStatus.DEVICE_UNAVAILABLE,
            f"{name}: OpenCL was started before this process was forked, and does not survive that: start workers with "
            "'spawn', or look for devices in the child only",
        )


def _watchdogs(idle_seconds: float) -> dict[ExecutionPreference, Watchdog]:
    return {
        ExecutionPreference.LOW_POWER: Watchdog(min(LOW_POWER_IDLE_SECONDS, idle_seconds)),
        ExecutionPreference.FAST_SINGLE_ANSWER: Watchdog(idle_seconds),
        ExecutionPreference.SUSTAINED_SPEED: Watchdog(math.inf),
    }


_open_contexts: weakref.WeakSet[DeviceContext] = weakref.WeakSet()


_opening = Scheduler(1)
_process = os.getpid()


@atexit.register
def _shut_down() -> None:
    with suppress(KeyboardInterrupt):  # what is not stored will be compiled again
        if _contexts_here() or os.getpid() == _process:  # else the lock may have been copied while it was taken
            _opening.close(EXIT_SECONDS)
        for context in _contexts_here():
            context.shut_down()


def _contexts_here() -> list[DeviceContext]:
    """Return the contexts that this process opened, without those inherited by fork."""
    return [context for context in list(_open_contexts) if context.process == os.getpid()]
