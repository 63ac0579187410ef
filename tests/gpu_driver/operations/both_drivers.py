# SPDX-License-Identifier: Apache-2.0
"""A model on an OpenCL device beside the CPU driver, with any number of outputs of sizes that the drivers find out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cpu_driver.driver import Device as CpuDevice
from nn_runtime.codes import OperandCode
from nn_runtime.hal.types import (
    DataLocation,
    ExecutionPreference,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Priority,
    Request,
    RequestArgument,
    Subgraph,
)
from nn_runtime.operand import dtype_of
from tests.gpu_driver.operations.compare import TOLERANCES, Scalar, Value, operand_of, scalar_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.codes import OperationCode
    from nn_runtime.device import Device
    from nn_runtime.operand import Array

ROOM_BYTES = 1 << 20


@dataclass(frozen=True)
class LeftOut:
    """An input without a value."""

    type: int
    scale: float = 0.0


Given: TypeAlias = "Value | Scalar | LeftOut"


@dataclass(frozen=True)
class Result:
    """An output's type and quantisation; its dimensions are left to the driver, their number `rank` is not."""

    type: int
    rank: int
    scale: float = 0.0
    zero_point: int = 0
    tolerance: tuple[float, float] | None = None
    """Absolute and relative; without it that of the type."""


def check_both(device: Device, code: OperationCode, inputs: Sequence[Given], results: Sequence[Result]) -> list[Array]:
    """Run one operation on the device and on the CPU driver and compare; return what the device gave.

    Types that hold integers must be equal.
    """
    actual, expected = (run(one, code, inputs, results) for one in (device.hal, CpuDevice()))
    for result, got, wanted in zip(results, actual, expected, strict=True):
        assert got.shape == wanted.shape
        tolerance = result.tolerance or TOLERANCES.get(OperandCode(result.type))
        if tolerance is None:
            np.testing.assert_array_equal(got, wanted)
        else:
            absolute, relative = tolerance
            np.testing.assert_allclose(
                got.astype(np.float64), wanted.astype(np.float64), atol=absolute, rtol=relative, equal_nan=True
            )
    return actual


def run(driver: object, code: OperationCode, inputs: Sequence[Given], results: Sequence[Result]) -> list[Array]:
    """Return the outputs of one operation on a HAL device."""
    halves = any(isinstance(value, Value) and value.type == OperandCode.TENSOR_FLOAT16 for value in inputs)
    values = [value if isinstance(value, LeftOut) else _as_value(value, halves) for value in inputs]
    operands = [_left_out(value) if isinstance(value, LeftOut) else operand_of(value) for value in values]
    first = len(operands)
    operands += [
        Operand(one.type, (0,) * one.rank, one.scale, one.zero_point, OperandLifeTime.SUBGRAPH_OUTPUT)
        for one in results
    ]
    outputs = tuple(range(first, len(operands)))
    given = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    graph = Subgraph(tuple(operands), (Operation(code, tuple(range(first)), outputs),), given, outputs)
    arrays = [value.data for value in (values[i] for i in given) if isinstance(value, Value)]
    return execute_model(driver, Model(graph), arrays, results)


def execute_model(driver: object, model: Model, inputs: Sequence[Array], results: Sequence[Result]) -> list[Array]:
    """Return the outputs of a model on a HAL device that takes it all."""
    refused = [support.reason for support in driver.explain_operations(model) if not support.supported]  # type: ignore[attr-defined]
    assert not refused
    preference, priority = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM
    prepared = driver.prepare_model(model, preference, priority, None, None)  # type: ignore[attr-defined]
    room = [np.full(ROOM_BYTES, 0xA5, np.uint8) for _ in results]
    request = Request(
        tuple(RequestArgument(location=_pointer(array), dimensions=array.shape) for array in inputs),
        tuple(RequestArgument(location=_pointer(array)) for array in room),
    )
    shapes = prepared.execute_synchronously(request, False, None, None).output_shapes
    prepared.close()
    found = []
    for result, data, shape in zip(results, room, shapes, strict=True):
        dtype = dtype_of(result.type)
        size = int(np.prod(shape.dimensions)) * dtype.itemsize
        found.append(data[:size].view(dtype).reshape(shape.dimensions))
    return found


def _as_value(value: Value | Scalar, halves: bool) -> Value:
    value = value if isinstance(value, Value) else scalar_value(value)
    if halves and value.type == OperandCode.FLOAT32:
        return Value(OperandCode.FLOAT16, value.data.astype(np.float16))
    return value


def _left_out(value: LeftOut) -> Operand:
    return Operand(value.type, (0,), value.scale, lifetime=OperandLifeTime.NO_VALUE)


def _pointer(array: Array) -> DataLocation:
    return DataLocation(length=array.nbytes, pointer=array)
