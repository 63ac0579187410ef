# SPDX-License-Identifier: Apache-2.0
"""A driver whose device knows one operation of its own: the first n Fibonacci numbers.

Extension com.example.fibonacci:

    operand type 0   INT64, a scalar of 8 bytes
    operand type 1   TENSOR_QUANT64_ASYMM, elements of 8 bytes: real = scale * (q - zero_point), with the two in the
                     operand's extension data (`pack_quantization`)
    operation 0      FIBONACCI. Input: n, INT64 or a TENSOR_FLOAT32 of one element, >= 1.
                     Output: TENSOR_FLOAT32 [n] or TENSOR_QUANT64_ASYMM [n]
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import EXTENSION_PREFIX_SHIFT, DeviceTypeCode, FeatureLevel, OperandCode
from nn_runtime.errors import BadData
from nn_runtime.hal.interfaces import OperationSupport
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, earlier_deadline, wait_for_fences
from nn_runtime.hal.types import (
    Capabilities,
    DeviceStatus,
    ErrorStatus,
    ExecutionResult,
    Extension,
    HalError,
    OutputShape,
    PerformanceInfo,
    Timing,
)
from nn_runtime.hal.validation import validate_model, validate_preference, validate_priority, validate_request
from nn_runtime.hal.views import argument_bytes, constant_bytes
from nn_runtime.operand import merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from nn_runtime.hal.interfaces import CacheRequest, IDevice, IPreparedModel
    from nn_runtime.hal.types import (
        BufferDesc,
        BufferRole,
        ExecutionPreference,
        Model,
        Operand,
        Operation,
        Priority,
        Request,
    )
    from nn_runtime.operand import Array

EXTENSION_NAME = "com.example.fibonacci"
INT64, TENSOR_QUANT64_ASYMM = 0, 1
FIBONACCI = 0

_QUANTIZATION = struct.Struct("<dq")
_LARGEST = 92
"""The last Fibonacci number that fits 64 bits."""


def pack_quantization(scale: float, zero_point: int) -> bytes:
    """Return the extension data of a TENSOR_QUANT64_ASYMM operand."""
    return _QUANTIZATION.pack(scale, zero_point)


class Device:
    """The Fibonacci device (IDevice, ExplainsOperations)."""

    name = "fibonacci"

    def get_capabilities(self) -> Capabilities:
        """Return the figures of the CPU for everything: nobody else takes the operation anyway."""
        same = PerformanceInfo(exec_time=1.0, power_usage=1.0)
        return Capabilities({int(code): same for code in OperandCode}, same, same, same, same)

    def get_version_string(self) -> str:
        """Return the driver's version."""
        return "1.0"

    def get_type(self) -> DeviceTypeCode:
        """Return OTHER."""
        return DeviceTypeCode.OTHER

    def get_feature_level(self) -> int:
        """Return HAL 1.3's."""
        return FeatureLevel.HAL_1_3

    def get_status(self) -> DeviceStatus:
        """Return AVAILABLE."""
        return DeviceStatus.AVAILABLE

    def get_supported_extensions(self) -> Sequence[Extension]:
        """Return the one extension: operand types as (is a tensor, bytes of an element)."""
        return (Extension(EXTENSION_NAME, {INT64: (False, 8), TENSOR_QUANT64_ASYMM: (True, 8)}),)

    def get_number_of_cache_files_needed(self) -> tuple[int, int]:
        """Return (0, 0): nothing is worth keeping."""
        return 0, 0

    def explain_operations(self, model: Model) -> Sequence[OperationSupport]:
        """Take FIBONACCI with the right operands, and say what is wrong with others."""
        validate_model(model)
        reasons = [_refusal(model, operation) for operation in model.main.operations]
        return [OperationSupport(not reason, reason) for reason in reasons]

    def get_supported_operations(self, model: Model) -> Sequence[bool]:
        """Return one bool per operation."""
        return [answer.supported for answer in self.explain_operations(model)]

    def prepare_model(
        self,
        model: Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline_ns: int | None,
        cache: CacheRequest | None,
    ) -> PreparedModel:
        """Prepare a model of operations that are supported."""
        validate_preference(preference)
        validate_priority(priority)
        for at, answer in enumerate(self.explain_operations(model)):
            if not answer.supported:
                raise HalError(ErrorStatus.INVALID_ARGUMENT, f"operation {at}: {answer.reason}")
        return PreparedModel(model)

    def prepare_model_from_cache(self, deadline_ns: int | None, cache: CacheRequest) -> NoReturn:
        """Refuse: nothing is cached."""
        raise HalError(ErrorStatus.GENERAL_FAILURE, "no compilation cache")

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[IPreparedModel],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
    ) -> NoReturn:
        """Refuse: the device has no memory of its own."""
        raise HalError(ErrorStatus.GENERAL_FAILURE, "no memory of its own")

    def close(self) -> None:
        """Nothing is held."""


class PreparedModel:
    """A model of FIBONACCI operations (IPreparedModel)."""

    def __init__(self, model: Model) -> None:
        """Keep the model, which has been checked."""
        self._model = model

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Compute every operation and return the shapes of the outputs."""
        validate_request(self._model, request)
        return self._execute(request, measure, deadline_ns)

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, FinishedFencedExecution]:
        """Wait for the fences, compute, and return no fence: all is done."""
        validate_request(self._model, request, allow_unspecified_output=False)
        wait_for_fences(wait_for, deadline_ns)
        result = self._execute(request, measure, earlier_deadline(deadline_ns, duration_after_fence_ns))
        return None, FinishedFencedExecution(result.timing, result.timing)

    def configure_execution_burst(self) -> PlainBurst:
        """Return a burst that executes as usual."""
        return PlainBurst(self)

    def close(self) -> None:
        """Nothing is held."""

    def _execute(self, request: Request, measure: bool, deadline_ns: int | None) -> ExecutionResult:
        start_ns = time.monotonic_ns()
        if deadline_ns is not None and start_ns >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")
        main = self._model.main
        values: dict[int, Array] = {}
        for index, argument in zip(main.input_indexes, request.inputs, strict=True):
            if argument.has_no_value:
                raise HalError(ErrorStatus.INVALID_ARGUMENT, f"operand {index}: n must have a value")
            values[index] = argument_bytes(argument.location, request.pools)
        for at, operation in enumerate(main.operations):
            values[operation.outputs[0]] = self._fibonacci(at, operation, values)
        shapes = []
        for index, argument in zip(main.output_indexes, request.outputs, strict=True):
            result = values[index]
            _check_dimensions(f"operand {index}", main.operands[index], argument.dimensions, result.shape)
            data = result.view(np.uint8).reshape(-1)
            target = argument_bytes(argument.location, request.pools) if not argument.has_no_value else data
            sufficient = data.nbytes <= target.nbytes
            if sufficient:
                target[: data.nbytes] = data
            shapes.append(OutputShape(result.shape, sufficient))
        if not all(shape.is_sufficient for shape in shapes):
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "an output is too small", tuple(shapes))
        elapsed = time.monotonic_ns() - start_ns
        return ExecutionResult(tuple(shapes), Timing(elapsed, elapsed) if measure else Timing())

    def _fibonacci(self, at: int, operation: Operation, values: dict[int, Array]) -> Array:
        operands = self._model.main.operands
        source, target = operands[operation.inputs[0]], operands[operation.outputs[0]]
        data = values.get(operation.inputs[0])
        if data is None:
            data = constant_bytes(self._model, source)
        if data is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"operation {at} FIBONACCI: n must have a value")
        is_float = source.type == OperandCode.TENSOR_FLOAT32
        n = int(np.frombuffer(data.tobytes(), np.float32 if is_float else np.int64)[0])
        if not 1 <= n <= _LARGEST:
            raise HalError(
                ErrorStatus.INVALID_ARGUMENT, f"operation {at} FIBONACCI: n must be 1 to {_LARGEST}, got {n}"
            )
        numbers = np.ones(n, np.int64)
        for i in range(2, n):
            numbers[i] = numbers[i - 1] + numbers[i - 2]
        if target.type == OperandCode.TENSOR_FLOAT32:
            return numbers.astype(np.float32)
        scale, zero_point = _QUANTIZATION.unpack(target.extension_data or pack_quantization(1.0, 0))
        quantized: Array = np.rint(numbers / scale).astype(np.int64) + zero_point
        return quantized


def devices() -> list[IDevice]:
    """Return the devices of this driver: what the entry point names."""
    return [Device()]


def _refusal(model: Model, operation: Operation) -> str:
    """Return why an operation is not supported, "" if it is."""
    prefix = model.extension_name_to_prefix.get(EXTENSION_NAME)
    if prefix is None or operation.type != prefix << EXTENSION_PREFIX_SHIFT | FIBONACCI:
        return f"only operation {FIBONACCI} of {EXTENSION_NAME} is supported"
    if (len(operation.inputs), len(operation.outputs)) != (1, 1):
        return f"FIBONACCI has one input and one output, got {len(operation.inputs)} and {len(operation.outputs)}"
    source, target = (model.main.operands[i] for i in (*operation.inputs, *operation.outputs))
    int64, quant64 = (prefix << EXTENSION_PREFIX_SHIFT | code for code in (INT64, TENSOR_QUANT64_ASYMM))
    if source.type not in (int64, OperandCode.TENSOR_FLOAT32):
        return f"n must be an INT64 or a TENSOR_FLOAT32, got {source.type}"
    if source.type == OperandCode.TENSOR_FLOAT32 and source.dimensions not in ((1,), (0,), ()):
        return f"n must be one number, got {list(source.dimensions)}"
    if target.type not in (quant64, OperandCode.TENSOR_FLOAT32):
        return f"the result must be a TENSOR_QUANT64_ASYMM or a TENSOR_FLOAT32, got {target.type}"
    if target.extension_data is not None and len(target.extension_data) != _QUANTIZATION.size:
        return f"a TENSOR_QUANT64_ASYMM has {_QUANTIZATION.size} bytes of extension data"
    return ""


def _check_dimensions(label: str, operand: Operand, wanted: tuple[int, ...], computed: tuple[int, ...]) -> None:
    try:
        merge_dimensions(merge_dimensions(operand.dimensions, wanted), computed)
    except BadData as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{label}: {error}") from error
