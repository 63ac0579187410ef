# SPDX-License-Identifier: Apache-2.0
"""The packets of a burst of HAL 1.2, made of records of one size (SURFACE section i).

A packet's first record says how many records there are; any record added, taken away, replaced or damaged makes the
whole packet invalid. Every byte of a record that carries nothing is zero.

    request   packet information, per input its information and sizes, per output the same, a slot per pool, timing
    result    packet information, per output its information and sizes, timing
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from nn_runtime.hal.types import DataLocation, OutputShape, Request, RequestArgument
from nn_runtime.hal.versions import v1_2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions

RECORD_BYTES = 32

_MAX_U32 = 2**32 - 1


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
