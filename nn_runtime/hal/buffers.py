# SPDX-License-Identifier: Apache-2.0
"""What drivers share of memory domains: roles, tokens, and the state of a driver-managed buffer (SURFACE section e).

The bytes themselves are the driver's: it gives a `Storage` and finds it again as `ManagedBuffer.storage`.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import field, replace
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from nn_runtime.codes import is_extension_code, operand_type_name
from nn_runtime.errors import BadData, NNError
from nn_runtime.hal.memory import PROT_WRITE
from nn_runtime.hal.types import BufferToken, ErrorStatus, HalError
from nn_runtime.operand import has_unknown_dimensions, is_tensor, merge_dimensions, size_bytes
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import BufferDesc, BufferRole, Model, Operand, Request
    from nn_runtime.operand import Array, Dimensions


class Storage(Protocol):
    """A driver's memory behind a managed buffer. Its size follows the dimensions of the buffer."""

    def reserve(self, size_bytes: int) -> None:
        """Have at least that much memory; what it held may be lost."""

    def read(self, destination: Array) -> None:
        """Copy the first bytes into `destination`, uint8 [n]."""

    def write(self, source: Array) -> None:
        """Replace the first bytes by `source`, uint8 [n]."""

    def close(self) -> None:
        """Free the memory."""


S = TypeVar("S", bound=Storage)

_Role = tuple[bool, int]
"""Whether it is an output, and the index among the model's inputs or outputs."""


class ManagedBuffer(Generic[S]):
    """A driver-managed buffer (IBuffer): what it holds, for whom, and whether it holds anything yet."""

    def __init__(self, token: int, operand: Operand, storage: S, registry: BufferRegistry[S]) -> None:
        """Use `BufferRegistry.allocate` instead. `operand` has the merged type and dimensions of all roles."""
        self.token = token
        self.type = operand.type
        self.initial_dimensions = operand.dimensions
        self.dimensions = operand.dimensions
        self.initialized = False
        self.storage = storage
        self._registry = registry

    @property
    def size_bytes(self) -> int:
        """Size of the data in its present dimensions; 0 while they are not known."""
        return size_bytes(self.type, self.dimensions)

    def copy_to(self, destination: SharedMemory) -> None:
        """Copy the whole buffer out."""
        if not self.initialized:
            _fail(ErrorStatus.GENERAL_FAILURE, f"buffer {self.token} holds nothing yet")
        if destination.size_bytes != self.size_bytes:
            _invalid(f"buffer {self.token} has {self.size_bytes} bytes, the destination {destination.size_bytes}")
        self.storage.read(_mapped(destination, writable=True))

    def copy_from(self, source: SharedMemory, dimensions: Dimensions) -> None:
        """Fill the whole buffer; `dimensions` () keeps the initial ones."""
        self.initialized = False
        given = self._dimensions_to_fill(dimensions)
        wanted = size_bytes(self.type, given)
        if source.size_bytes != wanted:
            _invalid(f"buffer {self.token} {list(given)} has {wanted} bytes, the source {source.size_bytes}")
        data = _mapped(source, writable=False)
        self.storage.reserve(wanted)
        self.storage.write(data)
        self.mark_written(given)

    def mark_written(self, dimensions: Dimensions) -> None:
        """Note that the storage now holds data of these dimensions."""
        self.dimensions = dimensions
        self.initialized = True

    def mark_failed(self) -> None:
        """Note that the storage's contents are worthless."""
        self.initialized = False

    def close(self) -> None:
        """Free the buffer and its token."""
        if self._registry.forget(self):
            self.initialized = False
            self.storage.close()

    def _dimensions_to_fill(self, dimensions: Dimensions) -> Dimensions:
        if dimensions and not is_tensor(self.type):
            _invalid(f"buffer {self.token} holds a scalar, got dimensions {list(dimensions)}")
        if dimensions and 0 in dimensions:
            _invalid(f"buffer {self.token}: all dimensions must be known, got {list(dimensions)}")
        try:
            given = merge_dimensions(self.initial_dimensions, dimensions)
        except BadData as error:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"buffer {self.token}: {error}") from error
        if has_unknown_dimensions(self.type, given):
            _invalid(f"buffer {self.token} {list(self.initial_dimensions)}: the dimensions are needed")
        return given


@dataclass(frozen=True)
class BoundBuffers(Generic[S]):
    """The managed buffers of one request, by index of input and of output."""

    inputs: dict[int, ManagedBuffer[S]] = field(default_factory=dict)
    outputs: dict[int, ManagedBuffer[S]] = field(default_factory=dict)

    def mark_failed(self) -> None:
        """Note that the execution failed: its output buffers hold nothing."""
        for buffer in self.outputs.values():
            buffer.mark_failed()


class BufferRegistry(Generic[S]):
    """The live buffers of one device by token, with their roles."""

    def __init__(self, model_of: Callable[[IPreparedModel], Model | None]) -> None:
        """`model_of` returns the model of a prepared model of this device, None for a foreign one."""
        self._model_of = model_of
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        self._buffers: weakref.WeakValueDictionary[int, ManagedBuffer[S]] = weakref.WeakValueDictionary()
        self._roles: dict[int, weakref.WeakKeyDictionary[IPreparedModel, set[_Role]]] = {}

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
        make_storage: Callable[[Operand], S],
    ) -> tuple[ManagedBuffer[S], int]:
        """Check the roles (rules of IDevice::allocate) and return a buffer with its token.

        `make_storage` gets the merged operand and may raise HalError(GENERAL_FAILURE) for what it cannot serve.
        """
        models = self._models(prepared_models)
        roles = [(role, False) for role in input_roles] + [(role, True) for role in output_roles]
        operand = _merged_operand(desc, prepared_models, models, roles)
        if is_extension_code(operand.type):
            _fail(ErrorStatus.GENERAL_FAILURE, f"buffer: cannot hold {operand_type_name(operand.type)}")
        allowed: weakref.WeakKeyDictionary[IPreparedModel, set[_Role]] = weakref.WeakKeyDictionary()
        for role, is_output in roles:
            allowed.setdefault(prepared_models[role.model_index], set()).add((is_output, role.io_index))
        storage = make_storage(operand)
        with self._lock:
            buffer = ManagedBuffer(next(self._tokens), operand, storage, self)
            self._buffers[buffer.token] = buffer
            self._roles[buffer.token] = allowed
        weakref.finalize(buffer, self._roles.pop, buffer.token, None)
        return buffer, buffer.token

    def bind(self, prepared: IPreparedModel, request: Request) -> BoundBuffers[S]:
        """Return the buffers whose tokens a valid request names, after the checks of "Use of a token in a request"."""
        if not any(isinstance(pool, BufferToken) for pool in request.pools):
            return BoundBuffers()
        bound: BoundBuffers[S] = BoundBuffers()
        for is_output, arguments in ((False, request.inputs), (True, request.outputs)):
            for i, argument in enumerate(arguments):
                if argument.has_no_value or argument.location.pointer is not None:
                    continue
                pool = request.pools[argument.location.pool_index]
                if isinstance(pool, BufferToken):
                    buffer = self._checked_use(prepared, pool.value, (is_output, i), argument.dimensions)
                    (bound.outputs if is_output else bound.inputs)[i] = buffer
        _check_distinct(bound)
        return bound

    def forget(self, buffer: ManagedBuffer[S]) -> bool:
        """Take a buffer off the list; return whether it was on it."""
        with self._lock:
            self._roles.pop(buffer.token, None)
            return self._buffers.pop(buffer.token, None) is not None

    def _models(self, prepared_models: Sequence[IPreparedModel]) -> list[Model]:
        if not prepared_models:
            _invalid("buffer: needs a prepared model")
        models = []
        for i, prepared in enumerate(prepared_models):
            model = self._model_of(prepared)
            if model is None:
                _invalid(f"buffer: prepared model {i} is not of this device")
            models.append(model)
        return models

    def _checked_use(
        self, prepared: IPreparedModel, token: int, role: _Role, dimensions: Dimensions
    ) -> ManagedBuffer[S]:
        is_output, index = role
        label = f"{'output' if is_output else 'input'} {index}"
        with self._lock:  # another thread may close it just now
            buffer, roles = self._buffers.get(token), self._roles.get(token)
        if buffer is None or roles is None:
            _invalid(f"{label}: no buffer has the token {token}")
        if role not in roles.get(prepared, ()):
            _invalid(f"{label}: buffer {token} was not allocated for this use")
        if not is_output and not buffer.initialized:
            _fail(ErrorStatus.GENERAL_FAILURE, f"{label}: buffer {token} holds nothing yet")
        try:
            merge_dimensions(buffer.initial_dimensions if is_output else buffer.dimensions, dimensions)
        except BadData as error:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{label}: buffer {token}: {error}") from error
        return buffer


def _check_distinct(bound: BoundBuffers[S]) -> None:
    written = [buffer.token for buffer in bound.outputs.values()]
    read = {buffer.token for buffer in bound.inputs.values()}
    if len(set(written)) != len(written) or read & set(written):
        _invalid("request: a buffer that is written may be used only once")


def _merged_operand(
    desc: BufferDesc,
    prepared_models: Sequence[IPreparedModel],
    models: Sequence[Model],
    roles: Sequence[tuple[BufferRole, bool]],
) -> Operand:
    """Return the operand that all roles and the description agree on; a prepared model may be listed twice."""
    if not roles:
        _invalid("buffer: needs at least one role")
    seen = set()
    merged: Operand | None = None
    for role, is_output in roles:
        operand = _operand_of(models, role, is_output)
        key = (id(prepared_models[role.model_index]), is_output, role.io_index)
        if key in seen:
            _invalid(f"buffer: {_role_name(role, is_output)} is given twice")
        seen.add(key)
        merged = operand if merged is None else _merge(merged, operand, _role_name(role, is_output))
    if merged is None:
        _invalid("buffer: needs at least one role")
    if desc.dimensions and not is_tensor(merged.type) and not is_extension_code(merged.type):
        _invalid(f"buffer: {operand_type_name(merged.type)} is a scalar, got dimensions {list(desc.dimensions)}")
    return _with_dimensions(merged, desc.dimensions, "description")


def _operand_of(models: Sequence[Model], role: BufferRole, is_output: bool) -> Operand:
    name = _role_name(role, is_output)
    if not 0 <= role.model_index < len(models):
        _invalid(f"buffer: {name}: there are {len(models)} prepared models")
    main = models[role.model_index].main
    indexes = main.output_indexes if is_output else main.input_indexes
    if not 0 <= role.io_index < len(indexes):
        _invalid(f"buffer: {name}: the model has {len(indexes)}")
    if not 0.0 < role.frequency <= 1.0:
        _invalid(f"buffer: {name}: frequency must be in (0, 1], got {role.frequency}")
    return main.operands[indexes[role.io_index]]


def _merge(merged: Operand, operand: Operand, name: str) -> Operand:
    for what in ("type", "scale", "zero_point", "channel_quant"):
        if what == "channel_quant" and is_extension_code(merged.type):
            continue
        wanted, given = getattr(merged, what), getattr(operand, what)
        if wanted != given:
            _invalid(f"buffer: {name} has {what} {given}, another role {wanted}")
    return _with_dimensions(merged, operand.dimensions, name)


def _with_dimensions(operand: Operand, dimensions: Dimensions, name: str) -> Operand:
    try:
        return replace(operand, dimensions=merge_dimensions(operand.dimensions, dimensions))
    except BadData as error:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"buffer: {name}: {error}") from error


def _role_name(role: BufferRole, is_output: bool) -> str:
    return f"{'output' if is_output else 'input'} {role.io_index} of prepared model {role.model_index}"


def _mapped(memory: SharedMemory, writable: bool) -> Array:
    try:
        data = memory.array()
    except NNError as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, str(error)) from error
    if writable and not memory.prot & PROT_WRITE:
        _fail(ErrorStatus.GENERAL_FAILURE, "memory: cannot be written")
    return data


def _invalid(message: str) -> NoReturn:
    raise HalError(ErrorStatus.INVALID_ARGUMENT, message)


def _fail(status: ErrorStatus, message: str) -> NoReturn:
    raise HalError(status, message)
