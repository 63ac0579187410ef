# SPDX-License-Identifier: Apache-2.0
"""A model under construction and finished (SURFACE sections a, d, m)."""

from __future__ import annotations

import logging
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime import extensions, vlog
from nn_runtime.checks import check_kind, copied_bytes, flag
from nn_runtime.codes import OEM_OPERATION, OperandCode, is_extension_code, operation_name
from nn_runtime.device import RUNTIME_FEATURE_LEVEL, Device, checked_devices
from nn_runtime.errors import BadData, BadState, NNError, UnexpectedNull
from nn_runtime.graph import Graph, ModelOperand
from nn_runtime.hal import types as hal
from nn_runtime.hal.types import INLINE_CONSTANT_BYTES, OperandLifeTime
from nn_runtime.hal.validation import validate_model
from nn_runtime.hal.versions.defaults import without_default_arguments
from nn_runtime.memory import Memory
from nn_runtime.numeric import whole, whole_numbers
from nn_runtime.observe import graph_dump, trace
from nn_runtime.operand import (
    OperandType,
    check_channel_quant,
    check_operand_type,
    dtype_of,
    has_unknown_dimensions,
    is_tensor,
    size_bytes,
)
from nn_runtime.operations import OperationView, validate
from nn_runtime.partition import query_support

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, ChannelQuant

_log = logging.getLogger("nn_runtime.model")


class _State(Enum):
    BUILDING = auto()
    FINISHED = auto()
    INVALID = auto()
    CLOSED = auto()


_STATE_NAMES = {
    _State.BUILDING: "not finished",
    _State.FINISHED: "finished",
    _State.INVALID: "invalid",
    _State.CLOSED: "closed",
}


class Model:
    """A graph of operations over operands. Indices are given out in order of adding."""

    def __init__(self) -> None:
        vlog.read_tags()
        trace.read_setting()
        self._graph = Graph()
        self._relaxed = False
        self._state = _State.BUILDING
        self._hal: hal.Model | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self._graph.operations)} operations, {len(self._graph.operands)} operands"
        return f"<Model {_STATE_NAMES[self._state]}: {sizes}>"

    @property
    def hal(self) -> hal.Model:
        """The model as drivers get it, operations in run order; raises BadState unless finished."""
        if self._hal is None:
            raise BadState(f"model: it is {_STATE_NAMES[self._state]}")
        return self._hal

    @property
    def run_order(self) -> tuple[int, ...]:
        """Original index of each operation of `hal.main`."""
        return self._graph.run_order

    def add_operand(self, operand_type: OperandType) -> int:
        """Append an operand and return its index; raises BadState, BadData."""
        check_kind("add_operand: the operand type", operand_type, OperandType)
        self._check_building("add_operand")
        at = len(self._graph.operands)
        try:
            check_operand_type(operand_type)
        except BadData as error:
            raise BadData(f"operand {at}: {error}") from error
        self._graph.operands.append(ModelOperand(operand_type))
        return at

    def set_operand_value(self, index: int, value: Array | float | None) -> None:
        """Make an operand a constant; None omits it.

        `value`: a C-contiguous array of the operand's dtype and size, or a Python number for a scalar. Up to 128 bytes
        are copied at once; a larger array must not change before `finish`, which copies it. Raises BadState, BadData.
        """
        self._check_building("set_operand_value")
        operand = self._operand(index, "set_operand_value")
        if value is None:
            operand.lifetime, operand.data, operand.shared = OperandLifeTime.NO_VALUE, None, None
            operand.location = hal.DataLocation()
            return
        label = self._graph.label(index)
        self._check_can_be_constant(operand, label)
        if not isinstance(value, np.ndarray):
            value = _scalar_array(label, operand.type, value)
        if operand.type != OperandCode.OEM_SCALAR:
            value = plain_array(label, operand.type, value)
            _check_length(label, operand.operand_type, value.nbytes)
        data: Array = value.reshape(-1).view(np.uint8)
        operand.data = data.copy() if data.nbytes <= INLINE_CONSTANT_BYTES else data
        operand.shared = None
        operand.location = hal.DataLocation()
        operand.lifetime = OperandLifeTime.CONSTANT_COPY

    def set_operand_value_from_memory(self, index: int, memory: Memory, offset: int, length: int) -> None:
        """Make an operand a constant that lies in shared memory; raises BadState, BadData."""
        check_kind(f"set_operand_value_from_memory: operand {index}: the memory", memory, Memory)
        self._check_building("set_operand_value_from_memory")
        operand = self._operand(index, "set_operand_value_from_memory")
        label = self._graph.label(index)
        self._check_can_be_constant(operand, label)
        if memory.is_closed:
            raise BadState(f"{label}: the memory is closed")
        if memory.shared is None or memory.domain is not None:
            raise BadData(f"{label}: device memory cannot hold a constant")
        if memory.is_used_whole:
            raise BadData(f"{label}: a constant: wanted plain bytes, format BLOB, got a {memory.shared}")
        offset, length = whole(f"{label}: offset", offset), whole(f"{label}: length", length)
        _check_length(label, operand.operand_type, length)
        if offset < 0 or offset + length > memory.shared.size_bytes:
            raise BadData(
                f"{label}: bytes {offset} to {offset + length} are outside the memory of {memory.shared.size_bytes}"
            )
        operand.shared = memory.shared
        operand.location = hal.DataLocation(offset=offset, length=length)
        operand.data = memory.shared.array()[offset : offset + length]
        operand.lifetime = OperandLifeTime.CONSTANT_REFERENCE

    def set_operand_value_from_model(self, index: int, model: Model) -> None:
        """Let a MODEL operand refer to a finished model; raises BadState, BadData."""
        check_kind(f"set_operand_value_from_model: operand {index}: the model", model, Model)
        self._check_building("set_operand_value_from_model")
        operand = self._operand(index, "set_operand_value_from_model")
        if model._state != _State.FINISHED:
            raise BadState(f"{self._graph.label(index)}: the referenced model must be finished and valid")
        if operand.type != OperandCode.MODEL:
            raise BadData(f"{self._graph.label(index)}: only a MODEL operand can refer to a model")
        operand.graph = model._graph
        operand.lifetime = OperandLifeTime.SUBGRAPH

    def set_operand_symm_per_channel_quant_params(self, index: int, params: ChannelQuant) -> None:
        """Set the scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand; raises BadState, BadData."""
        call = "set_operand_symm_per_channel_quant_params"
        if params is None:
            raise UnexpectedNull(f"{call}: operand {index}: the per-channel parameters are None")
        self._check_building(call)
        operand = self._operand(index, call)
        kind = operand.operand_type
        changed = OperandType(kind.type, kind.dims, kind.scale, kind.zero_point, params)
        try:
            check_channel_quant(changed)
        except BadData as error:
            raise BadData(f"operand {index}: {error}") from error
        operand.operand_type = changed

    def extension_operand_type(self, device: Device, name: str, code: int) -> int:
        """Return the code for operands of type `code` of a vendor extension; raises UnexpectedNull, BadData."""
        check_kind("extension_operand_type: the device", device, Device)
        check_kind("extension_operand_type: the name", name, str)
        return extensions.operand_type(device, name, code)

    def extension_operation_type(self, device: Device, name: str, code: int) -> int:
        """Return the code for operation `code` of a vendor extension; raises UnexpectedNull, BadData."""
        check_kind("extension_operation_type: the device", device, Device)
        check_kind("extension_operation_type: the name", name, str)
        return extensions.operation_type(device, name, code)

    def set_operand_extension_data(self, index: int, data: bytes | None) -> None:
        """Give an operand of an extension's type what only its driver understands; None or b"" takes it back.

        Raises BadState, BadData.
        """
        self._check_building("set_operand_extension_data")
        operand = self._operand(index, "set_operand_extension_data")
        if not is_extension_code(operand.type):
            raise BadData(f"{self._graph.label(index)}: only an operand of an extension's type has extension data")
        own = b"" if data is None else copied_bytes("set_operand_extension_data", data)
        operand.extension_data = own or None

    def add_operation(self, code: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Append an operation; counts, types, ranks and quantisation are checked at once. Raises BadState, BadData."""
        if inputs is None or outputs is None:
            raise UnexpectedNull("add_operation: the inputs or outputs are None")
        self._check_building("add_operation")
        at, operands = len(self._graph.operations), self._graph.operands
        label = f"operation {at} {operation_name(whole(f'operation {at}: code', code))}"
        inputs, outputs = whole_numbers(f"{label}: inputs", inputs), whole_numbers(f"{label}: outputs", outputs)
        for what, indexes in (("input", inputs), ("output", outputs)):
            for position, index in enumerate(indexes):
                if not 0 <= index < len(operands):
                    raise BadData(
                        f"{label}: {what} {position} is operand {index}, the model has {len(operands)} operands"
                    )
        if is_extension_code(code):
            if not extensions.is_known(code):
                raise BadData(f"{label}: the extension is not registered")
        elif code != OEM_OPERATION:
            validate(OperationView(code, [operands[i] for i in inputs], [operands[i] for i in outputs], at))
        self._graph.operations.append(hal.Operation(int(code), inputs, outputs))

    def identify_inputs_and_outputs(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Name the model's inputs and outputs, each operand at most once; raises BadState, BadData."""
        if inputs is None or outputs is None:
            raise UnexpectedNull("identify_inputs_and_outputs: the inputs or outputs are None")
        self._check_building("identify_inputs_and_outputs")
        inputs, outputs = whole_numbers("model inputs", inputs), whole_numbers("model outputs", outputs)
        seen: dict[int, str] = {}
        for what, indexes in (("input", inputs), ("output", outputs)):
            for position, index in enumerate(indexes):
                operand = self._operand(index, f"{what} {position}")
                if index in seen:
                    raise BadData(f"{what} {position}: operand {index} is {seen[index]} already")
                if operand.lifetime != OperandLifeTime.TEMPORARY_VARIABLE:
                    raise BadData(f"{what} {position}: operand {index} is a constant, omitted, or named before")
                seen[index] = f"{what} {position}"
        for index in inputs:
            self._graph.operands[index].lifetime = OperandLifeTime.SUBGRAPH_INPUT
        for index in outputs:
            self._graph.operands[index].lifetime = OperandLifeTime.SUBGRAPH_OUTPUT
        self._graph.input_indexes, self._graph.output_indexes = inputs, outputs

    def relax_computation_float32_to_float16(self, allow: bool) -> None:
        """Allow float32 to be computed with the range and precision of float16; raises BadState."""
        self._check_building("relax_computation_float32_to_float16")
        self._relaxed = flag("relax_computation_float32_to_float16", allow)

    def finish(self) -> None:
        """Sort the operations into run order, check the whole, and freeze it.

        Raises BadState if called before, BadData for an invalid model, which stays invalid for ever.
        """
        self._check_building("finish")
        self._state = _State.INVALID
        started_ns = time.perf_counter_ns()
        if not self._graph.operands or not self._graph.operations:
            raise BadData("model: it needs at least one operand and one operation")
        self._graph.check_written()
        self._graph.sort()
        self._graph.pool_large_constants()
        built = self._graph.to_hal(self._relaxed)
        _validate(built)
        built = without_default_arguments(built)
        self._hal = built
        self._state = _State.FINISHED
        tracer = trace.current
        if tracer is not None:
            tracer.add(trace.RUNTIME, "PP", "model finish", started_ns, time.perf_counter_ns())
        _log.debug(
            "model finished: %d operands, %d operations, %d inputs, %d outputs",
            len(self._graph.operands),
            len(self._graph.operations),
            len(self._graph.input_indexes),
            len(self._graph.output_indexes),
        )
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", graph_dump.dot(built))

    def supported_operations(self, devices: Sequence[Device]) -> list[bool]:
        """Tell for each operation, in order of adding, whether one of the devices takes it.

        Raises UnexpectedNull, BadData, BadState.
        """
        checked = checked_devices("supported_operations", devices)
        model = self.hal
        answers = [query_support(model, device) for device in checked]
        supported = [False] * len(self._graph.operations)
        for position, original in enumerate(self._graph.run_order):
            supported[original] = any(answer[position].supported for answer in answers)
        return supported

    def close(self) -> None:
        """Let the constants go; compilations of the model keep what they need."""
        self._graph = Graph()
        self._hal = None
        self._state = _State.CLOSED

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_building(self, call: str) -> None:
        if self._state != _State.BUILDING:
            raise BadState(f"{call}: the model is {_STATE_NAMES[self._state]}")

    def _operand(self, index: int, call: str) -> ModelOperand:
        if not 0 <= whole(f"{call}: operand", index) < len(self._graph.operands):
            raise BadData(
                f"{call}: operand {index} is out of range, the model has {len(self._graph.operands)} operands"
            )
        return self._graph.operands[index]

    def _check_can_be_constant(self, operand: ModelOperand, label: str) -> None:
        if operand.type == OperandCode.MODEL:
            raise BadData(f"{label}: use set_operand_value_from_model")
        if operand.lifetime in (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT):
            raise BadData(f"{label}: it is an input or output of the model")
        if has_unknown_dimensions(operand.type, operand.operand_type.dims):
            raise BadData(f"{label}: a constant needs known dimensions")


def _validate(model: hal.Model) -> None:
    try:
        level = validate_model(model)
    except (hal.HalError, NNError) as error:
        raise BadData(str(error)) from error
    if level > RUNTIME_FEATURE_LEVEL:
        raise BadData(f"model: it needs feature level {level:d}, this runtime has {RUNTIME_FEATURE_LEVEL:d}")


def plain_array(label: str, code: int, array: Array) -> Array:
    """Return an array of the operand type's dtype (any, for an extension's) and plain C layout without its subclass.

    Raises BadData for another, and for masked arrays: a mask is no part of their bytes.
    """
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):  # which is 12 ms to import
        raise BadData(f"{label}: wanted a plain array, got a masked one: its filled() is one")
    wanted = dtype_of(code)
    if array.dtype != wanted and not is_extension_code(code):
        raise BadData(f"{label}: wanted an array of {wanted}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise BadData(f"{label}: wanted a C-contiguous array, got strides {array.strides} for {list(array.shape)}")
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def _check_length(label: str, operand_type: OperandType, length: int) -> None:
    wanted = size_bytes(operand_type.type, operand_type.dims)
    if length != wanted:
        raise BadData(f"{label}: a value of {wanted} bytes is wanted, got {length}")


def _scalar_array(label: str, code: int, value: float) -> Array:
    dtype = dtype_of(code)
    if is_tensor(code) or is_extension_code(code):
        raise BadData(f"{label}: wanted an array of {dtype}, got {type(value).__name__}")
    if not isinstance(value, int | float | np.generic):
        raise BadData(f"{label}: wanted a number, got {value!r}")
    if isinstance(value, np.integer):
        value = int(value)  # too large a one would be cut to the bits that fit
    try:
        with np.errstate(over="raise", invalid="raise"):
            array: Array = np.array(value, dtype)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise BadData(f"{label}: {value!r} is no {dtype}: {error}") from error
    if dtype.kind in "iu" and array != value:
        raise BadData(f"{label}: wanted a whole number, got {value!r}")
    return array
