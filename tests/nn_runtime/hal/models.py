# SPDX-License-Identifier: Apache-2.0
"""Small HAL models that tests of the contract and of drivers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import (
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    Subgraph,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

FLOATS = OperandCode.TENSOR_FLOAT32
INPUT, OUTPUT = OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT


def constant(code: int, array: Array, dims: Dimensions = ()) -> Operand:
    """Return a constant held by pointer."""
    location = DataLocation(length=array.nbytes, pointer=array)
    return Operand(code, dims, lifetime=OperandLifeTime.POINTER, location=location)


def no_activation() -> Operand:
    return constant(OperandCode.INT32, np.zeros((), np.int32))


def add_model(dims: Dimensions = (2, 2), output_dims: Dimensions | None = None) -> Model:
    """Return a + b of two inputs, with a temporary: RELU(a + b)."""
    operands = (
        Operand(FLOATS, dims, lifetime=INPUT),
        Operand(FLOATS, dims, lifetime=INPUT),
        no_activation(),
        Operand(FLOATS, dims),
        Operand(FLOATS, dims if output_dims is None else output_dims, lifetime=OUTPUT),
    )
    operations = (Operation(OperationCode.ADD, (0, 1, 2), (3,)), Operation(OperationCode.RELU, (3,), (4,)))
    return Model(Subgraph(operands, operations, (0, 1), (4,)))


def pointer(array: Array, dims: Dimensions = ()) -> RequestArgument:
    return RequestArgument(location=DataLocation(length=array.nbytes, pointer=array), dimensions=dims)


def request(inputs: list[Array], outputs: list[Array]) -> Request:
    return Request(tuple(map(pointer, inputs)), tuple(map(pointer, outputs)))
