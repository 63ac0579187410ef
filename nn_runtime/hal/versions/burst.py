# SPDX-License-Identifier: Apache-2.0
"""Bursts of HAL 1.2: packets of fixed-size records over two channels, and memories known by slots (SURFACE section i).

A packet's first record says how many records there are; any record added, taken away, replaced or damaged makes the
whole packet invalid. Every byte of a record that carries nothing is zero.

    request   packet information, per input its information and sizes, per output the same, a slot per pool, timing
    result    packet information, per output its information and sizes, timing
"""

from __future__ import annotations

import itertools
import logging
import struct
import threading
import weakref
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    DataLocation,
    ErrorStatus,
    ExecutionResult,
    HalError,
    OutputShape,
    Request,
    RequestArgument,
)
from nn_runtime.hal.versions import v1_2
from nn_runtime.hal.versions.callbacks import checked_reply, guarded
from nn_runtime.hal.versions.conversion import canonical_status, status_to, timing_to_1_2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.versions.adapted_model import AdaptedPreparedModel
    from nn_runtime.operand import Dimensions

CHANNEL_LENGTH = 1024
"""Records that a channel holds, unless told otherwise."""
RECORD_BYTES = 32

_MAX_U32 = 2**32 - 1
_log = logging.getLogger("nn_runtime.driver")


class RequestKind(IntEnum):
    """What a record of a request is."""

    PACKET = 0
    INPUT = 1
    INPUT_SIZE = 2
    OUTPUT = 3
    OUTPUT_SIZE = 4
    POOL = 5
    TIMING = 6


class ResultKind(IntEnum):
    """What a record of a result is."""

    PACKET = 0
    OPERAND = 1
    OPERAND_SIZE = 2
    TIMING = 3


_FIELDS_OF_REQUEST: dict[int, struct.Struct] = {
    RequestKind.PACKET: struct.Struct("<IIII"),
    RequestKind.INPUT: struct.Struct("<IIIII"),
    RequestKind.INPUT_SIZE: struct.Struct("<I"),
    RequestKind.OUTPUT: struct.Struct("<IIIII"),
    RequestKind.OUTPUT_SIZE: struct.Struct("<I"),
    RequestKind.POOL: struct.Struct("<i"),
    RequestKind.TIMING: struct.Struct("<I"),
}
_FIELDS_OF_RESULT: dict[int, struct.Struct] = {
    ResultKind.PACKET: struct.Struct("<III"),
    ResultKind.OPERAND: struct.Struct("<II"),
    ResultKind.OPERAND_SIZE: struct.Struct("<I"),
    ResultKind.TIMING: struct.Struct("<QQ"),
}
_HEAD = struct.Struct("<Q")


class BadPacket(Exception):
    """A packet that is not as the protocol has it."""


class Channel:
    """A queue of records between two threads; holds at most `length` of them."""

    def __init__(self, length: int = CHANNEL_LENGTH) -> None:
        """Start empty."""
        self.length = length
        self._records: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def write(self, packet: Sequence[bytes]) -> bool:
        """Append a packet whole; False where it does not fit, or the channel is closed."""
        with self._changed:
            if self._closed or len(self._records) + len(packet) > self.length:
                return False
            self._records.extend(packet)
            self._changed.notify_all()
            return True

    def read(self) -> list[bytes] | None:
        """Wait for records and return all that are there; None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._closed)
            if self._closed:
                return None
            packet = list(self._records)
            self._records.clear()
            return packet

    def close(self) -> None:
        """Wake the readers; nothing goes through any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _record(kind: IntEnum, *values: int) -> bytes:
    fields = _FIELDS_OF_REQUEST if isinstance(kind, RequestKind) else _FIELDS_OF_RESULT
    return (_HEAD.pack(kind) + fields[kind].pack(*values)).ljust(RECORD_BYTES, b"\0")


class _Reader:
    """Takes records one by one and checks their kinds."""

    def __init__(self, packet: Sequence[bytes], fields: dict[int, struct.Struct]) -> None:
        self._packet = packet
        self._fields = fields
        self._at = 0

    def next(self, kind: IntEnum) -> tuple[int, ...]:
        if self._at >= len(self._packet):
            raise BadPacket(f"it ends after {len(self._packet)} records")
        record = self._packet[self._at]
        if len(record) != RECORD_BYTES:
            raise BadPacket(f"record {self._at} has {len(record)} bytes")
        (given,) = _HEAD.unpack_from(record)
        if given != kind:
            raise BadPacket(f"record {self._at}: wanted {kind.name}, got kind {given}")
        fields = self._fields[kind]
        if any(record[_HEAD.size + fields.size :]):
            raise BadPacket(f"record {self._at}: bytes that mean nothing are not zero")
        self._at += 1
        values: tuple[int, ...] = fields.unpack_from(record, _HEAD.size)
        return values

    def flag(self, value: int) -> bool:
        if value not in (0, 1):
            raise BadPacket(f"record {self._at - 1}: {value} is no truth value")
        return bool(value)

    def end(self, size: int) -> None:
        if size != len(self._packet) or self._at != len(self._packet):
            raise BadPacket(f"it says {size} records, has {len(self._packet)}, {self._at} of them meant")


def serialize_request(request: Request, measure: bool, slots: Sequence[int]) -> list[bytes]:
    """Return the packet of a request without pointers, tokens and padding; `slots` stand for its pools.

    Raises BadPacket for what a packet cannot express.
    """
    records = [b""]
    for arguments, kind, size_kind in (
        (request.inputs, RequestKind.INPUT, RequestKind.INPUT_SIZE),
        (request.outputs, RequestKind.OUTPUT, RequestKind.OUTPUT_SIZE),
    ):
        for argument in arguments:
            place, dims = argument.location, argument.dimensions
            if place.padding or place.pointer is not None:
                raise BadPacket("padding and pointers cannot be expressed")
            numbers = (place.pool_index, place.offset, place.length, *dims)
            if any(not 0 <= number <= _MAX_U32 for number in numbers):
                raise BadPacket(f"a number is out of range: {numbers}")
            records.append(
                _record(kind, argument.has_no_value, place.pool_index, place.offset, place.length, len(dims))
            )
            records += [_record(size_kind, size) for size in dims]
    records += [_record(RequestKind.POOL, slot) for slot in slots]
    records.append(_record(RequestKind.TIMING, measure))
    counts = (len(records), len(request.inputs), len(request.outputs), len(slots))
    records[0] = _record(RequestKind.PACKET, *counts)
    return records


def deserialize_request(packet: Sequence[bytes]) -> tuple[Request, bool, list[int]]:
    """Return a request (its pools left out), whether to measure, and the slots of its pools; raises BadPacket."""
    reader = _Reader(packet, _FIELDS_OF_REQUEST)
    size, inputs, outputs, pools = reader.next(RequestKind.PACKET)
    if size != len(packet) or inputs + outputs + pools + 2 > size:
        raise BadPacket(f"it says {size} records for {inputs} inputs, {outputs} outputs, {pools} pools")
    first = tuple(_argument(reader, RequestKind.INPUT, RequestKind.INPUT_SIZE) for _ in range(inputs))
    second = tuple(_argument(reader, RequestKind.OUTPUT, RequestKind.OUTPUT_SIZE) for _ in range(outputs))
    slots = [reader.next(RequestKind.POOL)[0] for _ in range(pools)]
    measure = reader.flag(reader.next(RequestKind.TIMING)[0])
    reader.end(size)
    return Request(first, second), measure, slots


def _argument(reader: _Reader, kind: RequestKind, size_kind: RequestKind) -> RequestArgument:
    omitted, pool, offset, length, rank = reader.next(kind)
    dims = tuple(reader.next(size_kind)[0] for _ in range(rank))
    return RequestArgument(reader.flag(omitted), DataLocation(pool, offset, length), dims)


def serialize_result(status: int, shapes: Sequence[OutputShape], timing: v1_2.Timing) -> list[bytes]:
    """Return the packet of a result."""
    records = [b""]
    for shape in shapes:
        records.append(_record(ResultKind.OPERAND, shape.is_sufficient, len(shape.dimensions)))
        records += [_record(ResultKind.OPERAND_SIZE, size) for size in shape.dimensions]
    records.append(_record(ResultKind.TIMING, timing.time_on_device, timing.time_in_driver))
    records[0] = _record(ResultKind.PACKET, len(records), status, len(shapes))
    return records


def deserialize_result(packet: Sequence[bytes]) -> tuple[int, tuple[OutputShape, ...], v1_2.Timing]:
    """Return status, shapes and timing of a result; raises BadPacket."""
    reader = _Reader(packet, _FIELDS_OF_RESULT)
    size, status, operands = reader.next(ResultKind.PACKET)
    if size != len(packet) or operands + 2 > size:
        raise BadPacket(f"it says {size} records for {operands} outputs, there are {len(packet)}")
    shapes = []
    for _ in range(operands):
        sufficient, rank = reader.next(ResultKind.OPERAND)
        is_sufficient = reader.flag(sufficient)
        dims: Dimensions = tuple(reader.next(ResultKind.OPERAND_SIZE)[0] for _ in range(rank))
        shapes.append(OutputShape(dims, is_sufficient))
    timing = v1_2.Timing(*reader.next(ResultKind.TIMING))
    reader.end(size)
    return status, tuple(shapes), timing


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

    def __init__(
        self, prepared: AdaptedPreparedModel, driver: v1_2.IPreparedModel, length: int = CHANNEL_LENGTH
    ) -> None:
        """Open the channels; raises HalError where the driver gives no burst."""
        self._prepared = prepared
        self._requests, self._results = Channel(length), Channel(length)
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
        self._requests.close()
        self._results.close()
        self._context.close()

    def _execute(self, request: Request, measure: bool) -> ExecutionResult:
        pools = [pool for pool in request.pools if isinstance(pool, SharedMemory)]
        try:
            packet = serialize_request(request, measure, self._memories.slots_of(pools))
        except BadPacket:
            return self._prepared.execute_synchronously(request, measure, None, None)
        with self._lock:
            if len(packet) > self._requests.length or not self._requests.write(packet):
                return self._prepared.execute_synchronously(request, measure, None, None)
            self.packets += 1
            answer = self._results.read()
        if answer is None:
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


def _unknown_slots(slots: Sequence[int]) -> NoReturn:
    raise HalError(ErrorStatus.INVALID_ARGUMENT, f"burst: there are no memories in the slots {slots}")
