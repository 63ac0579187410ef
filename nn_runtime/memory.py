# SPDX-License-Identifier: Apache-2.0
"""Memory objects: shared memory, mapped files, and driver-managed buffers from a MemoryDesc (SURFACE section e)."""

from __future__ import annotations

import logging
import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData, BadState, NNError, OperationFailed, UnexpectedNull, Unmappable
from nn_runtime.hal.memory import HardwareBuffer, SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, BufferToken, ErrorStatus, HalError
from nn_runtime.numeric import float32, whole, whole_numbers
from nn_runtime.operand import (
    MAX_SIZE_BYTES,
    dtype_of,
    has_unknown_dimensions,
    is_tensor,
    merge_dimensions,
    size_bytes,
)
from nn_runtime.step import error_of_hal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from nn_runtime.burst import Burst
    from nn_runtime.compilation import Compilation
    from nn_runtime.devices import Device
    from nn_runtime.hal.interfaces import IBuffer, IPreparedModel
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.plan import StepRole

_log = logging.getLogger("nn_runtime.memory")


@dataclass(frozen=True)
class Role:
    """A use of device memory: input or output `index` of a compilation."""

    compilation: Compilation
    is_input: bool
    index: int

    def __str__(self) -> str:
        return f"{'input' if self.is_input else 'output'} {self.index}"


class Domain:
    """What device memory knows beside its bytes: roles, type, initial and current dimensions, whether it has data."""

    def __init__(self, roles: frozenset[Role], operand: Operand, dimensions: Dimensions) -> None:
        """Start uninitialised."""
        self.roles = roles
        self.operand = operand
        self.initial = dimensions
        self.current = dimensions
        self.initialized = False

    def check_role(self, compilation: Compilation, is_input: bool, index: int) -> None:
        """Raise BadData unless the memory was made for this use."""
        role = Role(compilation, is_input, index)
        if role not in self.roles:
            known = ", ".join(sorted(str(known) for known in self.roles))
            raise BadData(f"{role}: this device memory was made for {known} of its compilations, not for this use")

    def check_input(self, index: int, dimensions: Dimensions) -> None:
        """Raise OperationFailed unless there is data of just these dimensions to read."""
        if not self.initialized:
            raise OperationFailed(f"input {index}: the device memory has no data yet")
        if dimensions and self.current and dimensions != self.current:
            raise OperationFailed(
                f"input {index}: the device memory holds {list(self.current)}, the input is {list(dimensions)}"
            )

    def written(self, dimensions: Dimensions) -> None:
        """Take the dimensions of a new result; raises OperationFailed where they contradict the initial ones."""
        self.initialized = False
        try:
            self.current = merge_dimensions(self.initial, dimensions)
        except BadData as error:
            raise OperationFailed(f"device memory: {error}") from error
        self.initialized = True

    def spoiled(self) -> None:
        """Note that a write failed."""
        self.initialized = False


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
        """Use `from_fd`, `from_array` or `from_desc` instead."""
        self.shared = shared
        self.buffer = buffer
        self.domain = domain
        self._pool: SharedMemory | BufferToken | None = shared if buffer is None else BufferToken(token)
        self._bursts: weakref.WeakSet[Burst] = weakref.WeakSet()

    @classmethod
    def from_fd(cls, size: int, prot: int, fd: int, offset: int) -> Memory:
        """Return `size` bytes of a file from `offset`; the descriptor is duplicated, prot as in mmap."""
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
        if buffer is None:
            raise UnexpectedNull("memory from hardware buffer: the buffer is None")
        if buffer.is_blob:
            buffer.array()
        return cls(buffer)

    @classmethod
    def from_desc(cls, desc: MemoryDesc) -> Memory:
        """Return device memory for the roles of a finished descriptor.

        One device behind all roles allocates it; else, and where that fails, it is shared memory, provided that no
        compilation among the roles names its devices and the size is known. Raises BadState, OperationFailed.
        """
        if desc is None:
            raise UnexpectedNull("memory from desc: the descriptor is None")
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
        wanted = np.dtype(dtype)
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

        Raises BadData for an uninitialised source or different sizes or dimensions; a failed copy leaves `dst`
        uninitialised.
        """
        if src is None or dst is None:
            raise UnexpectedNull("memory copy: the source or the destination is None")
        for what, memory in (("source", src), ("destination", dst)):
            if memory.is_closed:
                raise BadState(f"memory copy: the {what} is closed")
        if src is dst:
            return
        if src.domain is not None and not src.domain.initialized:
            raise BadData("memory copy: the source has no data yet")
        _check_same_content(src, dst)
        try:
            _copy_bytes(src, dst)
        except NNError:
            if dst.domain is not None:
                dst.domain.spoiled()
            raise
        if dst.domain is not None:
            dst.domain.written(src.domain.current if src.domain is not None else ())

    def used_by(self, burst: Burst) -> None:
        """Note a burst whose drivers may keep something for this memory until it is closed."""
        self._bursts.add(burst)

    def close(self) -> None:
        """Let the bytes go: a driver's buffer at once, shared memory when no model or execution uses it any more."""
        if self.shared is not None:
            for burst in list(self._bursts):
                burst.release(self.shared)
        self._pool = None
        self.shared = None
        if self.buffer is not None:
            self.buffer.close()
            self.buffer = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _check_same_content(src: Memory, dst: Memory) -> None:
    a, b = src.domain, dst.domain
    if a is not None and b is not None:
        if (a.operand.type, a.operand.scale, a.operand.zero_point) != (
            b.operand.type,
            b.operand.scale,
            b.operand.zero_point,
        ):
            raise BadData("memory copy: source and destination are of different operand types")
        try:
            merge_dimensions(b.initial, a.current)
        except BadData as error:
            raise BadData(f"memory copy: {error}") from error
        return
    if src.is_used_whole or dst.is_used_whole:
        raise Unmappable("memory copy: a hardware buffer of another format than BLOB cannot be copied")
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
    if src.shared is not None:
        _copy_in(src.shared, dst, ())
        return
    if dst.shared is not None:
        _copy_out(src, dst.shared)
        return
    with SharedMemory.create(src.size_bytes) as between:
        _copy_out(src, between)
        _copy_in(between, dst, src.domain.current if src.domain else ())


def _copy_out(src: Memory, shared: SharedMemory) -> None:
    if src.buffer is None:
        raise BadState("the memory is closed")
    try:
        src.buffer.copy_to(shared)
    except HalError as error:
        raise error_of_hal(error, "memory copy") from error


def _copy_in(shared: SharedMemory, dst: Memory, dimensions: Dimensions) -> None:
    if dst.buffer is None:
        raise BadState("the memory is closed")
    try:
        dst.buffer.copy_from(shared, dimensions)
    except HalError as error:
        raise error_of_hal(error, "memory copy") from error


class MemoryDesc:
    """What device memory will be used for: roles in finished compilations, and dimensions."""

    def __init__(self) -> None:
        self._roles: dict[Role, float] = {}
        self._operand: Operand | None = None
        self._dimensions: Dimensions = ()
        self._finished = False

    def add_input_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Say that the memory will be input `index` of executions of a compilation, `frequency` in (0, 1]."""
        self._add_role(compilation, True, index, frequency)

    def add_output_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Say that the memory will be output `index` of executions of a compilation."""
        self._add_role(compilation, False, index, frequency)

    def set_dimensions(self, dims: Sequence[int]) -> None:
        """Say the dimensions (0 for unknown), merged with those of the roles; raises BadState, BadData."""
        self._check_open()
        given = whole_numbers("memory desc: dimensions", dims)
        if any(size < 0 for size in given):
            raise BadData(f"memory desc: dimensions must be >= 0, 0 for unknown, got {list(given)}")
        if self._operand is not None and given and not is_tensor(self._operand.type):
            raise BadData(f"memory desc: the roles are scalars and have no dimensions, got {list(given)}")
        self._dimensions = merge_dimensions(self._dimensions, given)

    def finish(self) -> None:
        """End the description; raises BadData without any role, or for more than 2^32-1 bytes."""
        self._check_open()
        if self._operand is None:
            raise BadData("memory desc: it needs at least one role")
        if size_bytes(self._operand.type, self._dimensions) > MAX_SIZE_BYTES:
            raise BadData(f"memory desc: {list(self._dimensions)} needs more than 2^32-1 bytes")
        self._finished = True

    def close(self) -> None:
        """Forget the roles."""
        self._roles.clear()

    def __enter__(self) -> MemoryDesc:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._finished:
            raise BadState("memory desc: it is finished")

    def _add_role(self, compilation: Compilation, is_input: bool, index: int, frequency: float) -> None:
        self._check_open()
        if compilation is None:
            raise UnexpectedNull("memory desc: the compilation is None")
        role = Role(compilation, is_input, whole("memory desc: index of a role", index))
        plan = compilation.plan
        if plan is None:
            raise BadData(f"memory desc: the compilation of {role} is not finished, is closed, or its finish failed")
        graph = plan.model.main
        indexes = graph.input_indexes if role.is_input else graph.output_indexes
        if not 0 <= role.index < len(indexes):
            raise BadData(f"memory desc: {role} is out of range, the model has {len(indexes)}")
        if not 0 < float32(f"memory desc: frequency of {role}", frequency) <= 1:
            raise BadData(f"memory desc: frequency of {role} must be > 0 and <= 1, got {frequency}")
        if role in self._roles:
            raise BadData(f"memory desc: {role} is there already")
        operand = graph.operands[indexes[role.index]]
        dimensions = self._merged(role, operand)
        self._roles[role] = frequency
        self._operand = self._operand or operand
        self._dimensions = dimensions

    def _merged(self, role: Role, operand: Operand) -> Dimensions:
        first = self._operand
        if first is not None:
            for what in ("type", "scale", "zero_point", "channel_quant", "extension_data"):
                wanted, got = getattr(first, what), getattr(operand, what)
                if wanted != got:
                    raise BadData(f"memory desc: {what} of {role} is {got}, of the roles before {wanted}")
        if not is_tensor(operand.type) and self._dimensions:
            raise BadData(f"memory desc: {role} is a scalar and has no dimensions, got {list(self._dimensions)}")
        try:
            return merge_dimensions(self._dimensions, operand.dimensions)
        except BadData as error:
            raise BadData(f"memory desc: {role}: {error}") from error

    def allocate(self) -> Memory:
        """Return the memory; see `Memory.from_desc`."""
        if not self._finished or self._operand is None:
            raise BadState("memory from desc: the descriptor is not finished")
        domain = Domain(frozenset(self._roles), self._operand, self._dimensions)
        used = self._step_roles()
        used_devices = {role.step.device.name: role.step.device for role, _ in used}
        failure: NNError | None = None
        if len(used_devices) == 1:
            device = next(iter(used_devices.values()))
            try:
                buffer, token = _allocate_on(device, self._dimensions, used)
            except HalError as error:
                failure = error_of_hal(error, f"device memory on {device.name}")
                _log.debug("%s; falling back", failure)
            else:
                _log.debug("device memory %s on %s", list(self._dimensions), device.name)
                return Memory(None, buffer, token, domain)
        return self._allocate_shared(domain, failure, bool(used_devices))

    def _step_roles(self) -> list[tuple[StepRole, float]]:
        """Expand every role to the uses of the same operand by the steps of its plan."""
        found = []
        for role, frequency in self._roles.items():
            plan = role.compilation.plan
            if plan is not None:
                found += [(use, frequency) for use in plan.roles_of(role.is_input, role.index)]
        return found

    def _allocate_shared(self, domain: Domain, failure: NNError | None, on_devices: bool) -> Memory:
        """Return shared memory instead; what no device uses, but only interpreted control flow, always is."""
        code = domain.operand.type
        reason = f": {failure}" if failure else ""
        if on_devices and any(role.compilation.is_explicit for role in self._roles):
            raise OperationFailed(f"device memory: not possible on the devices of the compilation{reason}") from failure
        if has_unknown_dimensions(code, domain.initial):
            raise OperationFailed(
                f"device memory: shared memory needs known dimensions, got {list(domain.initial)}{reason}"
            ) from failure
        length = size_bytes(code, domain.initial) or dtype_of(code).itemsize
        return Memory(SharedMemory.create(length), domain=domain)


def _allocate_on(device: Device, dimensions: Dimensions, used: Sequence[tuple[StepRole, float]]) -> tuple[IBuffer, int]:
    prepared: list[IPreparedModel] = []
    roles: tuple[list[BufferRole], list[BufferRole]] = ([], [])
    for use, frequency in used:
        model = use.step.prepared
        if not any(model is other for other in prepared):
            prepared.append(model)
        at = next(i for i, other in enumerate(prepared) if other is model)
        roles[0 if use.is_input else 1].append(BufferRole(at, use.index, frequency))
    try:
        buffer, token = device.hal.allocate(BufferDesc(dimensions), prepared, roles[0], roles[1])
    except HalError:
        raise
    except Exception as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"allocate: {type(error).__name__}: {error}") from error
    if buffer is None or token <= 0:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver gave {buffer} and the token {token}")
    return buffer, token
