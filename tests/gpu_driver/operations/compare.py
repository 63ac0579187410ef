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
    from nn_runtime.device import Device
    from nn_runtime.operand import Array, ChannelQuant, Dimensions

FLOAT32, FLOAT16 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
INT32, BOOL8 = OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8
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
    omitted: bool = False

    def __post_init__(self) -> None:
        """Keep the scale as an exact float32 value, as models do."""
        object.__setattr__(self, "scale", float(np.float32(self.scale)))


Scalar: TypeAlias = "bool | int | float"


def random_tensor(
    code: OperandCode, dims: Dimensions, seed: int = 0, scale: float = 0.05, spread: float = 3.0
) -> Value:
    """Return normal numbers, or every 8-bit code alike with a zero point off the middle."""
    rng = np.random.default_rng(seed)
    if code in FLOAT_TYPES:
        return Value(code, (spread * rng.standard_normal(dims)).astype(dtype_of(code)))
    if code == BOOL8:
        return Value(code, rng.random(dims) < 0.5)
    info = np.iinfo(dtype_of(code))
    data = rng.integers(info.min, info.max, dims, info.dtype, endpoint=True)
    return Value(code, data) if code == INT32 else Value(code, data, scale, int(info.min) + 100 + seed)


def constant(values: Sequence[int] | Sequence[Sequence[int]]) -> Value:
    """Return a constant TENSOR_INT32."""
    return Value(INT32, np.array(values, np.int32), constant=True)


def integers(values: Array) -> Value:
    """Return a TENSOR_INT32 that the run brings."""
    return Value(INT32, np.ascontiguousarray(values, np.int32))


def nothing(code: OperandCode, scale: float = 0.0, zero_point: int = 0) -> Value:
    """Return type and quantisation of an output."""
    return Value(code, np.empty(0, dtype_of(code)), scale, zero_point)


def like(value: Value, scale: float | None = None, zero_point: int | None = None) -> Value:
    """Return an output of the same type, with its own quantisation where given."""
    return replace(
        value,
        scale=value.scale if scale is None else scale,
        zero_point=value.zero_point if zero_point is None else zero_point,
        channel_quant=None,
    )


def check(
    device: Device, code: OperationCode, inputs: Sequence[Value | Scalar], *outputs: Value, tolerance_of: float = 1.0
) -> None:
    """Run an operation on the device and by the CPU driver's function; `outputs` give types and quantisations.

    `tolerance_of`: how many times the usual tolerance of real numbers is allowed.
    """
    expected = references(code, inputs, outputs)
    actual = execute_all(device, code, inputs, outputs, [array.shape for array in expected])
    for output, got, wanted in zip(outputs, actual, expected, strict=True):
        if output.type not in TOLERANCES:
            np.testing.assert_array_equal(got, wanted)
            continue
        absolute, relative = (tolerance_of * limit for limit in TOLERANCES[OperandCode(output.type)])
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), atol=absolute, rtol=relative, equal_nan=True
        )


def references(code: OperationCode, inputs: Sequence[Value | Scalar], outputs: Sequence[Value]) -> list[Array]:
    """Return what the CPU driver's function gives, in the operation's output dimensions."""
    values = _values(inputs)
    bound = [
        BoundOperand(i, v.type, v.data.shape, v.scale, v.zero_point, v.channel_quant, v.omitted, known=v.data)
        for i, v in enumerate(values)
    ]
    results = [BoundOperand(len(bound) + i, v.type, (), v.scale, v.zero_point) for i, v in enumerate(outputs)]
    shapes = output_dimensions(BoundOperation(code, bound, results))
    function = function_of(code)
    if function is None:
        raise LookupError(f"the CPU driver has no {code.name}")
    shaped = [replace(result, dimensions=dims) for result, dims in zip(results, shapes, strict=True)]
    with np.errstate(all="ignore"):  # as the CPU driver does around every function
        arrays = function(BoundOperation(code, bound, shaped))
    return [array.reshape(dims) for array, dims in zip(arrays, shapes, strict=True)]


def execute(
    device: Device, code: OperationCode, inputs: Sequence[Value | Scalar], output: Value, dims: Dimensions
) -> Array:
    """Return what the device gives for an operation of one output."""
    return execute_all(device, code, inputs, [output], [dims])[0]


def execute_all(
    device: Device,
    code: OperationCode,
    inputs: Sequence[Value | Scalar],
    outputs: Sequence[Value],
    shapes: Sequence[Dimensions],
) -> list[Array]:
    """Return what the device gives."""
    values = _values(inputs)
    operands = [operand_of(value) for value in values]
    operands += [
        Operand(one.type, dims, one.scale, one.zero_point, OperandLifeTime.SUBGRAPH_OUTPUT)
        for one, dims in zip(outputs, shapes, strict=True)
    ]
    given = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    first = len(values)
    made = tuple(range(first, first + len(outputs)))
    graph = Subgraph(tuple(operands), (Operation(code, tuple(range(first)), made),), given, made)
    model = Model(graph)
    refused = [support.reason for support in device.hal.explain_operations(model) if not support.supported]  # type: ignore[attr-defined]
    if refused:
        raise AssertionError(f"refused: {refused}")
    results = [np.empty(dims, dtype_of(one.type)) for one, dims in zip(outputs, shapes, strict=True)]
    preference, priority = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
    prepared = device.hal.prepare_model(model, preference, priority, None, None)
    prepared.execute_synchronously(request([values[i].data for i in given], results), False, None, None)
    prepared.close()
    return results


def _values(inputs: Sequence[Value | Scalar]) -> list[Value]:
    values = [value if isinstance(value, Value) else scalar_value(value) for value in inputs]
    halves = any(value.type == FLOAT16 for value in values)
    if not halves:
        return values
    half = OperandCode.FLOAT16
    return [Value(half, v.data.astype(np.float16)) if v.type == OperandCode.FLOAT32 else v for v in values]


def scalar_value(value: Scalar) -> Value:
    """Return a scalar operand."""
    if isinstance(value, bool):
        return Value(OperandCode.BOOL, np.array(value))
    if isinstance(value, int):
        return Value(OperandCode.INT32, np.array(value, np.int32))
    return Value(OperandCode.FLOAT32, np.array(value, np.float32))


def operand_of(value: Value) -> Operand:
    """Return a model's operand: an input, or a constant with its data."""
    if value.omitted:
        return Operand(value.type, value.data.shape, value.scale, value.zero_point, OperandLifeTime.NO_VALUE)
    if is_tensor(value.type) and not value.constant:
        lifetime, location = OperandLifeTime.SUBGRAPH_INPUT, DataLocation()
    else:
        lifetime, location = OperandLifeTime.POINTER, DataLocation(length=value.data.nbytes, pointer=value.data)
    return Operand(value.type, value.data.shape, value.scale, value.zero_point, lifetime, location, value.channel_quant)
