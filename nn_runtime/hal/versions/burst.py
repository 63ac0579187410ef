# SPDX-License-Identifier: Apache-2.0
"""Bursts of HAL 1.2: requests and results as packets over two channels, memories known by slots (SURFACE section i)."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from typing import TYPE_CHECKING, NoReturn, Protocol

from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, HalError, OutputShape, Request
from nn_runtime.hal.versions import v1_2
from nn_runtime.hal.versions.callbacks import checked_reply, guarded
from nn_runtime.hal.versions.channel import CHANNEL_LENGTH, Channel
from nn_runtime.hal.versions.conversion import canonical_status, status_to, timing_to_1_2
from nn_runtime.hal.versions.packets import (
    BadPacket,
    deserialize_request,
    deserialize_result,
    serialize_request,
    serialize_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.versions.deaths import Deaths

_log = logging.getLogger("nn_runtime.driver")


class ExecutesPlainly(Protocol):
    """What a burst needs of the prepared model that it belongs to."""

    deaths: Deaths

    def check(self, request: Request) -> None:
        """Raise HalError(INVALID_ARGUMENT) unless the version can express a request."""

    def relocated(self, request: Request, execute: Callable[[Request], ExecutionResult]) -> ExecutionResult:
        """Call `execute` with a request without pointers, between the copies in and out."""

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute without the burst."""


class _Memories:
    """The client's memories by slot (IBurstCallback). They are not kept alive; a slot goes with its memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._slots: dict[int, int] = {}
        self._memories: dict[int, weakref.ref[SharedMemory]] = {}
        self.on_free: Callable[[int], None] = lambda _slot: None

    def slots_of(self, pools: Iterable[SharedMemory]) -> list[int]:
        return [self._slot(pool) for pool in pools]

    def get_memories(self, slots: Sequence[int]) -> tuple[int, Sequence[SharedMemory]]:
        found = []
        for slot in slots:
            reference = self._memories.get(slot)
            memory = None if reference is None else reference()
            if memory is None:
                return ErrorStatus.INVALID_ARGUMENT, ()
            found.append(memory)
        return ErrorStatus.NONE, found

    def free(self, memory: SharedMemory) -> None:
        self._drop(id(memory))

    def _slot(self, memory: SharedMemory) -> int:
        key = id(memory)
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = next(self._numbers)
                self._memories[slot] = weakref.ref(memory, lambda _gone: self._drop(key))
        return slot

    def _drop(self, key: int) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._memories.pop(slot, None)
            self.on_free(slot)


class BurstClient:
    """The runtime's end of a burst (IBurstContext). What a packet cannot express is executed as usual.

    With deadline or loop timeout, buffer tokens, padding, or more records than a channel holds.
    """

    def __init__(self, prepared: ExecutesPlainly, driver: v1_2.IPreparedModel, length: int = CHANNEL_LENGTH) -> None:
        """Open the channels; raises HalError where the driver gives no burst."""
        self._prepared = prepared
        self._requests, self._results = Channel(length), Channel(length)
        weakref.finalize(self, _close, self._requests, self._results).atexit = False  # the server waits for requests
        self._memories = _Memories()
        self._lock = threading.Lock()
        status, context = guarded(
            lambda: driver.configure_execution_burst(self._memories, self._requests, self._results), "configure a burst"
        )
        if status != ErrorStatus.NONE or context is None:
            found = canonical_status(status)
            wrong = ErrorStatus.GENERAL_FAILURE if found == ErrorStatus.NONE else found
            raise HalError(wrong, "the driver opens no burst")
        self._context: v1_2.IBurstContext = context
        self._memories.on_free = context.free_memory
        self._died = False
        self.packets = 0
        """Requests that went through the channel."""

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute one request."""
        plain = all(isinstance(pool, SharedMemory) for pool in request.pools)
        if deadline_ns is not None or loop_timeout_ns is not None or not plain:
            return self._prepared.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        self._prepared.check(request)
        return self._prepared.relocated(request, lambda moved: self._execute(moved, measure))

    def free_memory(self, memory: SharedMemory) -> None:
        """Drop the slot of a memory."""
        self._memories.free(memory)

    def close(self) -> None:
        """End the burst."""
        self._close_channels()
        self._context.close()

    def notify_as_dead(self) -> None:
        """Wake those who wait: the service died. Later requests are executed as usual."""
        self._died = True
        self._close_channels()

    def _close_channels(self) -> None:
        _close(self._requests, self._results)

    def _execute(self, request: Request, measure: bool) -> ExecutionResult:
        pools = [pool for pool in request.pools if isinstance(pool, SharedMemory)]
        try:
            packet = serialize_request(request, measure, self._memories.slots_of(pools))
        except BadPacket:
            return self._prepared.execute_synchronously(request, measure, None, None)
        with self._lock:
            try:
                if len(packet) > self._requests.length or not self._requests.write(packet):
                    return self._prepared.execute_synchronously(request, measure, None, None)
                self.packets += 1
                with self._prepared.deaths.awaiting(self):
                    answer = self._results.read()
            except HalError:
                raise
            except BaseException:
                self._close_channels()  # the answer may still come: nobody may take it for another's
                raise
        if answer is None:
            if self._died:
                raise HalError(ErrorStatus.DEAD_OBJECT, "the service behind the driver died")
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the burst is closed")
        try:
            reply = deserialize_result(answer)
        except BadPacket as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver sent a bad packet: {error}") from error
        return ExecutionResult(*checked_reply(*reply))


class BurstServer:
    """The driver's end of a burst: a thread that executes what comes (IBurstContext of HAL 1.2)."""

    def __init__(
        self, prepared: IPreparedModel, callback: v1_2.IBurstCallback, requests: Channel, results: Channel
    ) -> None:
        """Start serving."""
        self._prepared = prepared
        self._callback = callback
        self._requests, self._results = requests, results
        self._memories: dict[int, weakref.ref[SharedMemory]] = {}
        self._thread = threading.Thread(target=self._serve, name="burst", daemon=True)
        self._thread.start()

    def free_memory(self, slot: int) -> None:
        """Forget the memory of a slot."""
        self._memories.pop(slot, None)

    def close(self) -> None:
        """Stop serving, when the request in hand is done."""
        self._requests.close()
        self._results.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        while (packet := self._requests.read()) is not None:
            status, shapes, timing = self._executed(packet)
            answer = serialize_result(status, shapes, timing)
            if not self._results.write(answer):
                _log.warning("burst: a result of %d records does not fit its channel", len(answer))
                failure = serialize_result(ErrorStatus.GENERAL_FAILURE, (), v1_2.Timing())
                if not self._results.write(failure):
                    self._results.close()

    def _executed(self, packet: Sequence[bytes]) -> tuple[int, tuple[OutputShape, ...], v1_2.Timing]:
        try:
            request, measure, slots = deserialize_request(packet)
            pools = self._pools(slots)
            complete = Request(request.inputs, request.outputs, pools)
            result = self._prepared.execute_synchronously(complete, measure, None, None)
        except BadPacket as error:
            _log.warning("burst: bad packet: %s", error)
            return ErrorStatus.INVALID_ARGUMENT, (), v1_2.Timing()
        except HalError as error:
            kept = error.output_shapes if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE else ()
            return status_to(error.status, 0), kept, v1_2.Timing()
        except Exception as error:
            _log.warning("burst: %s: %s", type(error).__name__, error)
            return ErrorStatus.GENERAL_FAILURE, (), v1_2.Timing()
        return ErrorStatus.NONE, result.output_shapes, timing_to_1_2(result.timing)

    def _pools(self, slots: Sequence[int]) -> tuple[SharedMemory, ...]:
        known = {slot: self._memory(slot) for slot in slots}
        missing = [slot for slot, memory in known.items() if memory is None]
        if missing:
            status, memories = self._callback.get_memories(missing)
            if status != ErrorStatus.NONE or len(memories) != len(missing):
                _unknown_slots(missing)
            for slot, found in zip(missing, memories, strict=True):
                known[slot] = found
                self._memories[slot] = weakref.ref(found)
        return tuple(memory for slot in slots if (memory := known[slot]) is not None)

    def _memory(self, slot: int) -> SharedMemory | None:
        reference = self._memories.get(slot)
        return None if reference is None else reference()


def _close(*channels: Channel) -> None:
    for channel in channels:
        channel.close()


def _unknown_slots(slots: Sequence[int]) -> NoReturn:
    raise HalError(ErrorStatus.INVALID_ARGUMENT, f"burst: there are no memories in the slots {slots}")
