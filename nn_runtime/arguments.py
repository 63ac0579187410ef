# SPDX-License-Identifier: Apache-2.0
"""What may be bound to a model's input or output: arrays and memories, with their dimensions and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.checks import check_kind
from nn_runtime.codes import OperandCode, operand_type_name
from nn_runtime.errors import BadData, BadState
from nn_runtime.hal.memory import PROT_WRITE, SharedMemory
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.memory_domain import Role
from nn_runtime.model import plain_array
from nn_runtime.numeric import whole
from nn_runtime.operand import (
    OperandType,
    check_operand_type,
    check_refined,
    has_unknown_dimensions,
    merge_dimensions,
    size_bytes,
)
from nn_runtime.requests import Argument
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.hal.types import Model, Operand
    from nn_runtime.memory import Memory
    from nn_runtime.memory_domain import Domain
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.plan import Plan


@dataclass(frozen=True)
class Parameter:
    """Input or output `index` of a compilation, told by its plan, to which an argument can be bound."""

    plan: Plan
    is_input: bool
    index: int
    operand: Operand

    def __str__(self) -> str:
        return f"{'input' if self.is_input else 'output'} {self.index}"

    def bind_array(self, array: Array | None, operand_type: OperandType | None, padded: bool) -> Argument:
        """Return the argument of an array, None for an omitted one; `padded` allows more bytes than needed.

        Raises BadData.
        """
        dims = self._known_dimensions(operand_type, may_be_open=not self.is_input or array is None)
        if array is None:
            return Argument(dims)
        if not isinstance(array, np.ndarray):
            raise BadData(f"{self}: wanted a numpy array, got {type(array).__name__}")
        array = plain_array(str(self), self.operand.type, array)
        if not self.is_input and not array.flags.writeable:
            raise BadData(f"{self}: the array is read-only")
        length, padding = self._checked_length(dims, array.nbytes, padded)
        pointer = array if not padding else array.reshape(-1).view(np.uint8)[:length]
        return Argument(dims, pointer=pointer, length=length)

    def bind_memory(
        self, memory: Memory, offset: int, length: int, operand_type: OperandType | None, padded: bool
    ) -> Argument:
        """Return the argument of bytes of a memory, or of the whole; raises BadState, BadData."""
        if memory.is_closed:
            raise BadState(f"{self}: the memory is closed")
        offset, length = whole(f"{self}: offset", offset), whole(f"{self}: length", length)
        dims = self._known_dimensions(operand_type, may_be_open=not self.is_input)
        if memory.domain is not None or memory.is_used_whole:
            if memory.domain is not None:
                memory.domain.check_role(Role(self.plan, self.is_input, self.index))
            if (offset, length) != (0, 0):
                raise BadData(f"{self}: this memory is used whole: offset and length must be 0, got {offset}, {length}")
            if memory.domain is not None:
                return self._bind_device_memory(memory, memory.domain, dims)
            return Argument(dims, None, memory.pool)
        if length == 0:
            raise BadData(f"{self}: a length is needed, it cannot be implied for this memory")
        if offset < 0 or length < 0 or offset + length > memory.size_bytes:
            raise BadData(f"{self}: bytes {offset} to {offset + length} are outside the memory of {memory.size_bytes}")
        if not self.is_input and memory.shared is not None and not memory.shared.prot & PROT_WRITE:
            raise BadData(f"{self}: the memory is read-only: it was made without PROT_WRITE")
        needed, padding = self._checked_length(dims, length, padded)
        return Argument(dims, None, memory.pool, offset, needed, padding)

    def _bind_device_memory(self, memory: Memory, domain: Domain, dims: Dimensions) -> Argument:
        try:
            dims = merge_dimensions(dims, domain.initial)
        except BadData as error:
            raise BadData(f"{self}: device memory: {error}") from error
        if self.is_input and has_unknown_dimensions(self.operand.type, dims):
            raise BadData(f"{self}: its dimensions {list(dims)} must be known, by operand_type")
        if memory.shared is not None:
            return Argument(dims, None, memory.pool, 0, size_bytes(self.operand.type, dims))
        return Argument(dims, None, memory.pool, buffer=memory.buffer)

    def _checked_length(self, dims: Dimensions, given: int, padded: bool) -> tuple[int, int]:
        """Return (length, padding) of `given` bytes; raises BadData where they do not fit the dimensions."""
        if given == 0:
            raise BadData(f"{self}: the buffer has no bytes; None omits an argument")
        if has_unknown_dimensions(self.operand.type, dims):
            if self.is_input:
                raise BadData(f"{self}: its dimensions {list(dims)} must be known, by operand_type")
            return given, 0
        if self.operand.type == OperandCode.OEM_SCALAR:  # of a length that its vendor alone knows
            return given, 0
        needed = size_bytes(self.operand.type, dims)
        if given < needed or (given > needed and not padded):
            kind = f"{operand_type_name(self.operand.type)} {list(dims)}"
            raise BadData(f"{self}: {kind} needs {needed} bytes, got {given}")
        return needed, given - needed

    def _known_dimensions(self, operand_type: OperandType | None, *, may_be_open: bool) -> Dimensions:
        """Return what the caller says of the dimensions, else the model; raises BadData.

        A type must say what the model says, and all of it unless it `may_be_open`.
        """
        operand = self.operand
        if operand_type is None:
            return operand.dimensions
        check_kind(f"{self}: its type", operand_type, OperandType)
        if operand_type.type != operand.type:
            wanted, got = operand_type_name(operand.type), operand_type_name(operand_type.type)
            raise BadData(f"{self}: it is a {wanted}, the type given a {got}")
        try:
            check_operand_type(operand_type)
        except BadData as error:
            raise BadData(f"{self}: its type: {error}") from error
        given = operand_type.dims
        try:
            check_refined(operand.dimensions, given)
        except BadData as error:
            raise BadData(f"{self}: {error}") from error
        if not may_be_open and has_unknown_dimensions(operand.type, given):
            raise BadData(f"{self}: its dimensions {list(given)} must be known")
        return given


class Arguments:
    """What an execution has bound to the inputs of its compilation, or to the outputs."""

    def __init__(self, plan: Plan, *, is_input: bool) -> None:
        """Start with none bound."""
        main = plan.model.main
        self.operands = tuple(main.operands[i] for i in (main.input_indexes if is_input else main.output_indexes))
        self.memories: dict[int, Memory] = {}
        """Those of the arguments that lie in a memory, by index."""
        self._plan = plan
        self._is_input = is_input
        self._what = "input" if is_input else "output"
        self._bound: list[Argument | None] = [None] * len(self.operands)

    @property
    def any_bound(self) -> bool:
        """Whether one is bound, or omitted."""
        return any(argument is not None for argument in self._bound)

    def bind_array(self, index: int, array: Array | None, operand_type: OperandType | None, padded: bool) -> None:
        """Bind an array, None for an omitted argument; raises BadState where one is bound, BadData."""
        self._bound[index] = self._open_parameter(index).bind_array(array, operand_type, padded)

    def bind_memory(
        self, index: int, memory: Memory, offset: int, length: int, operand_type: OperandType | None, padded: bool
    ) -> None:
        """Bind bytes of a memory, or the whole; raises BadState where one is bound, BadData."""
        parameter = self._open_parameter(index)
        self._bound[index] = parameter.bind_memory(memory, offset, length, operand_type, padded)
        self.memories[index] = memory

    def all_bound(self) -> list[Argument]:
        """Return the arguments in order; raises BadData for one that is not bound."""
        found = [argument for argument in self._bound if argument is not None]
        if len(found) < len(self._bound):
            raise BadData(f"compute: {self._what} {self._bound.index(None)} is not bound")
        return found

    def domains(self) -> Iterator[tuple[int, Domain]]:
        """Return what is device memory, by the index of the argument."""
        return ((index, memory.domain) for index, memory in self.memories.items() if memory.domain is not None)

    def check_open(self) -> None:
        """Raise BadState for device memory that has been closed, Unmappable for a file that has been cut short."""
        for index, memory in self.memories.items():
            if memory.shared is not None:
                memory.shared.check_length()
            if memory.domain is not None and memory.is_closed:
                raise BadState(f"compute: the device memory of {self._what} {index} is closed")

    def check_data(self) -> None:
        """Raise OperationFailed for device memory without data of the dimensions that are to be read."""
        for index, domain in self.domains():
            argument = self._bound[index]
            if argument is not None:
                domain.check_input(index, argument.dimensions)

    def check_specified(self) -> None:
        """Raise BadData for dimensions that are not known, as a fenced execution needs them of its outputs."""
        for index, (operand, argument) in enumerate(zip(self.operands, self._bound, strict=True)):
            if argument is None or argument.omitted:
                continue
            if has_unknown_dimensions(operand.type, argument.dimensions):
                raise BadData(f"{self._what} {index}: a fenced execution needs its dimensions, by operand_type")

    def clear(self) -> None:
        """Let all go."""
        self._bound = [None] * len(self.operands)
        self.memories.clear()

    def _open_parameter(self, index: int) -> Parameter:
        count = len(self.operands)
        if not 0 <= whole(self._what, index) < count:
            raise BadData(f"{self._what} {index} is out of range, the model has {count} {self._what}s")
        if self._bound[index] is not None:
            raise BadState(f"{self._what} {index} is bound already")
        return Parameter(self._plan, self._is_input, index, self.operands[index])


def check_apart(model: Model, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
    """Raise BadData where an output shares bytes with another output, an input, or a constant of the model's memories.

    A device may write it before it has read all inputs. Source: ANeuralNetworksExecution in NeuralNetworksTypes.h.
    """
    for at, output in enumerate(outputs):
        for what, others in (("input", inputs), ("output", outputs[:at])):
            for number, other in enumerate(others):
                if _overlap(output, other):
                    raise BadData(f"output {at}: its memory overlaps that of {what} {number}")
        if any(_overlap(output, Argument(pool=pool)) for pool in model.pools) and any(
            _overlap(output, constant) for constant in _constants(model)
        ):
            raise BadData(f"output {at}: its memory overlaps that of a constant operand")


def _overlap(one: Argument, other: Argument) -> bool:
    """Tell whether two arguments share a byte; some have a pool whole."""
    if one.pool is None or other.pool is None:
        shown, others = _shown(one), _shown(other)
        return shown is not None and others is not None and np.may_share_memory(shown, others)
    if not isinstance(one.pool, SharedMemory) or not isinstance(other.pool, SharedMemory):
        return one.pool == other.pool
    if one.pool is other.pool:
        (start, end), (other_start, other_end) = _range(one, one.pool), _range(other, other.pool)
    else:
        file = one.pool.file_identity()
        if file is None or other.pool.file_identity() != file:
            return False
        (start, end), (other_start, other_end) = _range_in_file(one, one.pool), _range_in_file(other, other.pool)
    return start < other_end and other_start < end


def _shown(argument: Argument) -> Array | None:
    """Return the bytes of an argument that an array may show; of memory that no array shows there are none."""
    pool = argument.pool
    if not isinstance(pool, SharedMemory):
        return argument.pointer
    start, end = _range(argument, pool)
    mapped: Array | None = pool.mapped
    return None if mapped is None else mapped[start:end]


def _range(argument: Argument, pool: SharedMemory) -> tuple[int, int]:
    return argument.offset, argument.offset + argument.length if argument.length else pool.size_bytes


def _range_in_file(argument: Argument, pool: SharedMemory) -> tuple[int, int]:
    start, end = _range(argument, pool)
    return pool.offset + start, pool.offset + end


def _constants(model: Model) -> Iterator[Argument]:
    """Return where the constants lie that the model has in memories."""
    for graph in (model.main, *model.referenced):
        for operand in graph.operands:
            if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
                at = operand.location
                yield Argument(operand.dimensions, None, model.pools[at.pool_index], at.offset, at.length)
