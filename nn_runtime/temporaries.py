# SPDX-License-Identifier: Apache-2.0
"""Memory of a plan's temporaries, and the host's view of what steps read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.failures import copied
from nn_runtime.hal.memory import PAGE_BYTES, SharedMemory
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.operand import MAX_SIZE_BYTES, size_bytes
from nn_runtime.requests import Argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IBuffer
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Array, Dimensions


def own_pool(dimensions: Dimensions, length: int) -> Argument:
    """Return memory of its own for an operand of unknown size; raises HalError."""
    if length > MAX_SIZE_BYTES:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"a temporary of {length} bytes, at most 2^32-1 are allowed")
    return Argument(dimensions, pool=new_pool(length), length=length)


def new_pool(length: int) -> SharedMemory:
    """Return new shared memory; raises HalError."""
    try:
        return SharedMemory.create(length)
    except (OSError, MemoryError) as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"no shared memory of {length} bytes: {error}") from error


def slices(operands: Sequence[Operand]) -> list[Argument]:
    """Return memory of one new pool for operands of known size, each on its own pages; raises HalError."""
    sizes = [size_bytes(operand.type, operand.dimensions) for operand in operands]
    end = sum(-(-size // PAGE_BYTES) for size in sizes) * PAGE_BYTES
    pool = new_pool(end) if end else None
    offset = 0
    made = []
    for operand, size in zip(operands, sizes, strict=True):
        made.append(Argument(operand.dimensions, pool=pool, offset=offset, length=size))
        offset += -(-size // PAGE_BYTES) * PAGE_BYTES
    return made


def buffer_of(argument: Argument) -> IBuffer:
    """Return the driver-managed buffer of an argument; raises HalError."""
    if argument.buffer is None:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "the argument is no device memory")
    return argument.buffer


def host_bytes(argument: Argument, code: int) -> Array:
    """Return an argument's bytes, uint8: a view of host memory, a copy of a driver-managed buffer. Raises HalError."""
    if argument.pointer is not None:
        return argument.pointer.reshape(-1).view("u1")
    if isinstance(argument.pool, SharedMemory):
        return argument.pool.array()[argument.offset : argument.offset + argument.length]
    if argument.pool is None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "a value that control flow needs is omitted")
    host = new_pool(size_bytes(code, argument.dimensions))
    buffer = buffer_of(argument)
    copied(lambda: buffer.copy_to(host), "copy_to")
    return host.array()
