# SPDX-License-Identifier: Apache-2.0
"""One operation on an OpenCL device beside the CPU driver: 8-bit and integer results must be the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cpu_driver.operations import function_of
from gpu_driver.bound import BoundOperand, BoundOperation
from nn_runtime.codes import OperandCode
from nn_runtime.hal.types import (
    DataLocation,
    ExecutionPreference,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Priority,
    Subgraph,
)
from nn_runtime.operand import FLOAT_TYPES, dtype_of, is_tensor
from nn_runtime.operations import output_dimensions
from tests.gpu_driver.graphs import request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.codes import OperationCode
    from nn_runtime.devices import Device
    from nn_runtime.operand import Array, ChannelQuant, Dimensions

FLOAT32, FLOAT16 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
INT32 = OperandCode.TENSOR_INT32
ALL = (FLOAT32, FLOAT16, QUANT8, SIGNED)
TOLERANCES = {FLOAT32: (1e-5, 5 * 2.0**-23), FLOAT16: (5 * 2.0**-10, 5 * 2.0**-10)}
"""Absolute and relative; every other type is compared exactly."""


@dataclass(frozen=True)
class Value:
    """An operand with its data; scalars and tensors marked constant are part of the model, others inputs of it."""

    type: int
    data: Array
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    constant: bool = False


Scalar: TypeAlias = "bool | int | float"


def random_tensor(
    code: OperandCode, dims: Dimensions, seed: int = 0, scale: float = 0.05, spread: float = 3.0
) -> Value:
    """Return normal numbers, or every 8-bit code alike with a zero point off the middle."""
    rng = np.random.default_rng(seed)
    if code in FLOAT_TYPES:
        return Value(code, (spread * rng.standard_normal(dims)).astype(dtype_of(code)))
    info = np.iinfo(dtype_of(code))
    data = rng.integers(info.min, info.max, dims, info.dtype, endpoint=True)
    return Value(code, data) if code == INT32 else Value(code, data, scale, int(info.min) + 100 + seed)


def constant(values: Sequence[int]) -> Value:
    """Return a constant TENSOR_INT32 of rank 1."""
    return Value(INT32, np.array(values, np.int32), constant=True)


def like(value: Value, scale: float | None = None, zero_point: int | None = None) -> Value:
    """Return an output of the same type, with its own quantisation where given."""
    return replace(
        value,
        scale=value.scale if scale is None else scale,
        zero_point=value.zero_point if zero_point is None else zero_point,
        channel_quant=None,
    )


def check(device: Device, code: OperationCode, inputs: Sequence[Value | Scalar], output: Value) -> None:
    """Run an operation on the device and by the CPU driver's function; `output` gives type and quantisation."""
    expected = reference(code, inputs, output)
    actual = execute(device, code, inputs, output, expected.shape)
    if output.type not in TOLERANCES:
        np.testing.assert_array_equal(actual, expected)
        return
    absolute, relative = TOLERANCES[OperandCode(output.type)]
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), atol=absolute, rtol=relative, equal_nan=True
    )


def reference(code: OperationCode, inputs: Sequence[Value | Scalar], output: Value) -> Array:
    """Return what the CPU driver's function gives, in the operation's output dimensions."""
    values = _values(inputs)
    bound = [
        BoundOperand(i, v.type, v.data.shape, v.scale, v.zero_point, v.channel_quant, known=v.data)
        for i, v in enumerate(values)
    ]
    result = BoundOperand(len(bound), output.type, (), output.scale, output.zero_point)
    (dims,) = output_dimensions(BoundOperation(code, bound, [result]))
    function = function_of(code)
    if function is None:
        raise LookupError(f"the CPU driver has no {code.name}")
    with np.errstate(all="ignore"):  # as the CPU driver does around every function
        (array,) = function(BoundOperation(code, bound, [replace(result, dimensions=dims)]))
    return array.reshape(dims)


def execute(
    device: Device, code: OperationCode, inputs: Sequence[Value | Scalar], output: Value, dims: Dimensions
) -> Array:
    """Return what the device gives."""
    values = _values(inputs)
    operands = [_operand(value) for value in values]
    operands.append(Operand(output.type, dims, output.scale, output.zero_point, OperandLifeTime.SUBGRAPH_OUTPUT))
    given = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    last = len(values)
    graph = Subgraph(tuple(operands), (Operation(code, tuple(range(last)), (last,)),), given, (last,))
    model = Model(graph)
    refused = [support.reason for support in device.hal.explain_operations(model) if not support.supported]  # type: ignore[attr-defined]
    if refused:
        raise AssertionError(f"refused: {refused}")
    result = np.empty(dims, dtype_of(output.type))
    preference, priority = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
    prepared = device.hal.prepare_model(model, preference, priority, None, None)
    prepared.execute_synchronously(request([values[i].data for i in given], [result]), False, None, None)
    prepared.close()
    return result


def _values(inputs: Sequence[Value | Scalar]) -> list[Value]:
    values = [value if isinstance(value, Value) else _scalar(value) for value in inputs]
    halves = any(value.type == FLOAT16 for value in values)
    if not halves:
        return values
    half = OperandCode.FLOAT16
    return [Value(half, v.data.astype(np.float16)) if v.type == OperandCode.FLOAT32 else v for v in values]


def _scalar(value: Scalar) -> Value:
    if isinstance(value, bool):
        return Value(OperandCode.BOOL, np.array(value))
    if isinstance(value, int):
        return Value(OperandCode.INT32, np.array(value, np.int32))
    return Value(OperandCode.FLOAT32, np.array(value, np.float32))


def _operand(value: Value) -> Operand:
    if is_tensor(value.type) and not value.constant:
        lifetime, location = OperandLifeTime.SUBGRAPH_INPUT, DataLocation()
    else:
        lifetime, location = OperandLifeTime.POINTER, DataLocation(length=value.data.nbytes, pointer=value.data)
    return Operand(value.type, value.data.shape, value.scale, value.zero_point, lifetime, location, value.channel_quant)
