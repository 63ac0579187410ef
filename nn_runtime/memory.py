# SPDX-License-Identifier: Apache-2.0
"""Memory objects: shared memory, mapped files, and driver-managed buffers (SURFACE section e)."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from nn_runtime.checks import check_kind, shown
from nn_runtime.errors import BadData, BadState, UnexpectedNull, Unmappable
from nn_runtime.failures import attempt, copied, error_of_hal
from nn_runtime.hal.memory import HardwareBuffer, SharedMemory
from nn_runtime.hal.types import BufferToken, HalError
from nn_runtime.memory_domain import MEANING
from nn_runtime.numeric import whole_numbers
from nn_runtime.operand import has_unknown_dimensions, merge_dimensions, size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from nn_runtime.hal.interfaces import IBuffer
    from nn_runtime.memory_domain import Domain
    from nn_runtime.operand import Array, Dimensions


@runtime_checkable
class DescribesMemory(Protocol):
    """What memory is made from: a MemoryDesc, which knows compilations."""

    def allocate(self) -> Memory:
        """Return the memory; raises BadState, OperationFailed."""


class KeepsMemory(Protocol):
    """Who may keep something for a memory: a burst."""

    def release(self, memory: SharedMemory) -> None:
        """Let go what is kept for a memory that is being closed."""


class Memory:
    """Bytes that arguments and constants may lie in: shared memory, or a driver-managed buffer.

    `shared` or `buffer` holds the bytes; `domain` is there for memory made from a MemoryDesc.
    """

    def __init__(
        self,
        shared: SharedMemory | None,
        buffer: IBuffer | None = None,
        token: int = 0,
        domain: Domain | None = None,
    ) -> None:
        """Use `from_fd`, `from_array` or `from_desc` instead; raises UnexpectedNull for neither bytes nor a buffer."""
        if buffer is None:
            check_kind("memory: the shared memory", shared, SharedMemory)
        self.shared = shared
        self.buffer = buffer
        self.domain = domain
        self._pool: SharedMemory | BufferToken | None = shared if buffer is None else BufferToken(token)
        self._keepers: weakref.WeakSet[KeepsMemory] = weakref.WeakSet()

    @classmethod
    def from_fd(cls, size: int, prot: int, fd: int, offset: int) -> Memory:
        """Return `size` bytes of a file from `offset`; the descriptor is duplicated, prot as in mmap.

        Raises BadData, as for a size that is not positive; Unmappable for a descriptor that is not open.
        """
        return cls(SharedMemory.from_fd(size, prot, fd, offset))

    @classmethod
    def from_array(cls, array: Array) -> Memory:
        """Return new shared memory that holds a copy of an array; raises UnexpectedNull, BadData."""
        if array is None:
            raise UnexpectedNull("memory from array: the array is None")
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise BadData(f"memory from array: wanted a numpy array of numbers, got {kind}")
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        shared = SharedMemory.create(data.nbytes)
        shared.array()[:] = data
        return cls(shared)

    @classmethod
    def from_hardware_buffer(cls, buffer: HardwareBuffer) -> Memory:
        """Return the memory of a hardware buffer: plain bytes for BLOB, else an argument that is used whole.

        Raises UnexpectedNull, and Unmappable for a BLOB that the CPU may not read and write.
        """
        check_kind("memory from hardware buffer: the buffer", buffer, HardwareBuffer)
        if buffer.is_blob:
            buffer.array()
        return cls(buffer)

    @classmethod
    def from_desc(cls, desc: DescribesMemory) -> Memory:
        """Return device memory for the roles of a finished MemoryDesc.

        One device behind all roles allocates it; else, and where that fails, it is shared memory, provided that no
        compilation among the roles names its devices and the size is known. Raises UnexpectedNull, BadData, BadState,
        OperationFailed.
        """
        if desc is None:
            raise UnexpectedNull("memory from desc: the descriptor is None")
        if not isinstance(desc, DescribesMemory):
            raise BadData(f"memory from desc: wanted a MemoryDesc, got {shown(desc)}")
        return desc.allocate()

    @property
    def pool(self) -> SharedMemory | BufferToken:
        """The pool as a request names it; raises BadState when closed."""
        if self._pool is None:
            raise BadState("the memory is closed")
        return self._pool

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._pool is None

    @property
    def is_used_whole(self) -> bool:
        """Whether offset and length must be 0: a hardware buffer that is not plain bytes, whose size says nothing."""
        return isinstance(self.shared, HardwareBuffer) and not self.shared.is_blob

    @property
    def size_bytes(self) -> int:
        """Size in bytes; 0 for device memory of unknown dimensions."""
        if self.shared is not None:
            return self.shared.size_bytes
        return size_bytes(self.domain.operand.type, self.domain.current) if self.domain else 0

    def to_array(self, dtype: npt.DTypeLike, dims: Sequence[int]) -> Array:
        """Return the start of the memory as an array: a view of shared memory, a copy of a driver's buffer.

        Raises BadState when closed, BadData for negative dimensions or more bytes than there are.
        """
        try:
            wanted = np.dtype(dtype)
        except TypeError as error:
            raise BadData(f"memory: {shown(dtype)} is no type of numbers: {error}") from None
        if wanted.hasobject or not wanted.itemsize:
            raise BadData(f"memory: bytes cannot be shown as {wanted}")
        shape = whole_numbers("memory: dimensions", dims)
        if any(size < 0 for size in shape):
            raise BadData(f"memory: dimensions must be >= 0, got {list(shape)}")
        needed = wanted.itemsize * math.prod(shape)
        shared = self.shared if self.shared is not None else self._copied_out()
        if needed > shared.size_bytes:
            raise BadData(f"memory: {list(shape)} of {wanted} needs {needed} bytes, the memory has {shared.size_bytes}")
        return shared.array()[:needed].view(wanted).reshape(shape)

    def _copied_out(self) -> SharedMemory:
        shared = SharedMemory.create(max(1, self.size_bytes))
        _copy_out(self, shared)
        return shared

    @staticmethod
    def copy(src: Memory, dst: Memory) -> None:
        """Copy all bytes (and the dimensions, between device memories).

        Raises BadData for an uninitialised source or different sizes, types or dimensions; after any failure device
        memory that is the destination has no data.
        """
        for what, memory in (("source", src), ("destination", dst)):
            check_kind(f"memory copy: the {what}", memory, Memory)
        for what, memory in (("source", src), ("destination", dst)):
            if memory.is_closed:
                raise BadState(f"memory copy: the {what} is closed")
        if src is dst:
            return
        try:
            if src.domain is not None and not src.domain.initialized:
                raise BadData("memory copy: the source has no data yet")
            _check_same_content(src, dst)
            _copy_bytes(src, dst)
        except BaseException:
            if dst.domain is not None:
                dst.domain.spoiled()
            raise
        if dst.domain is not None:
            dst.domain.written(src.domain.current if src.domain is not None else ())

    def used_by(self, keeper: KeepsMemory) -> None:
        """Note who may keep something for this memory until it is closed: a burst, for its drivers."""
        self._keepers.add(keeper)

    def close(self) -> None:
        """Let the bytes go: a driver's buffer at once, shared memory when no model or execution uses it any more.

        An execution that has started with a driver's buffer, but not ended, may fail.
        """
        if self.shared is not None:
            for keeper in list(self._keepers):
                keeper.release(self.shared)
        self._pool = None
        self.shared = None
        if self.buffer is not None:
            attempt(self.buffer.close, "close of a buffer")
            self.buffer = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _check_same_content(src: Memory, dst: Memory) -> None:
    a, b = src.domain, dst.domain
    if a is not None and b is not None:
        for what in MEANING:
            wanted, got = getattr(b.operand, what), getattr(a.operand, what)
            if wanted != got:
                kinds = "source and destination are of different operand types"
                raise BadData(f"memory copy: {kinds}: {what} of the destination is {wanted}, of the source {got}")
        try:
            merge_dimensions(b.initial, a.current)
        except BadData as error:
            raise BadData(f"memory copy: {error}") from error
        return
    for what, memory in (("source", src), ("destination", dst)):
        if memory.is_used_whole:
            raise Unmappable(f"memory copy: the {what}: wanted plain bytes, format BLOB, got a {memory.shared}")
    sizes = [memory.size_bytes for memory in (src, dst)]
    if 0 not in sizes and sizes[0] != sizes[1]:
        raise BadData(f"memory copy: the source has {sizes[0]} bytes, the destination {sizes[1]}")
    if b is not None and has_unknown_dimensions(b.operand.type, b.initial):
        raise BadData(f"memory copy: the destination's dimensions {list(b.initial)} are not known")


def _copy_bytes(src: Memory, dst: Memory) -> None:
    if src.shared is not None and dst.shared is not None:
        length = min(src.shared.size_bytes, dst.shared.size_bytes)
        target = dst.shared.array()
        if not target.flags.writeable:
            raise Unmappable("memory copy: the destination was mapped without PROT_WRITE")
        target[:length] = src.shared.array()[:length]
        return
    dimensions = src.domain.current if src.domain is not None else ()
    if src.shared is not None:
        _copy_in(src.shared, dst, dimensions)
        return
    if dst.shared is not None:
        _copy_out(src, dst.shared)
        return
    with SharedMemory.create(src.size_bytes) as between:
        _copy_out(src, between)
        _copy_in(between, dst, dimensions)


def _copy_out(src: Memory, shared: SharedMemory) -> None:
    buffer = src.buffer
    if buffer is None:
        raise BadState("the memory is closed")
    try:
        copied(lambda: buffer.copy_to(shared), "copy_to")
    except HalError as error:
        raise error_of_hal(error, "memory copy") from error


def _copy_in(shared: SharedMemory, dst: Memory, dimensions: Dimensions) -> None:
    buffer = dst.buffer
    if buffer is None:
        raise BadState("the memory is closed")
    try:
        copied(lambda: buffer.copy_from(shared, dimensions), "copy_from")
    except HalError as error:
        raise error_of_hal(error, "memory copy") from error
