# SPDX-License-Identifier: Apache-2.0
"""Small HAL models for the driver's tests, and requests over arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
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
    from collections.abc import Sequence

    from nn_runtime.codes import OperationCode
    from nn_runtime.operand import Array, ChannelQuant, Dimensions

FLOAT = OperandCode.TENSOR_FLOAT32


class Graph:
    """Collects operands and operations; every method returns an operand's index."""

    def __init__(self) -> None:
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []

    def input(self, dims: Dimensions, code: int = FLOAT, scale: float = 0.0, zero_point: int = 0) -> int:
        index = self._add(Operand(code, dims, scale, zero_point, OperandLifeTime.SUBGRAPH_INPUT))
        self._inputs.append(index)
        return index

    def output(self, dims: Dimensions, code: int = FLOAT, scale: float = 0.0, zero_point: int = 0) -> int:
        index = self._add(Operand(code, dims, scale, zero_point, OperandLifeTime.SUBGRAPH_OUTPUT))
        self._outputs.append(index)
        return index

    def temporary(self, dims: Dimensions, code: int = FLOAT, scale: float = 0.0, zero_point: int = 0) -> int:
        return self._add(Operand(code, dims, scale, zero_point))

    def constant(
        self,
        data: Array,
        code: int | None = None,
        scale: float = 0.0,
        zero_point: int = 0,
        channel_quant: ChannelQuant | None = None,
    ) -> int:
        data = np.ascontiguousarray(data)
        if code is None:
            code = {"float32": FLOAT, "int32": OperandCode.TENSOR_INT32}[data.dtype.name]
        location = DataLocation(length=data.nbytes, pointer=data)
        operand = Operand(code, data.shape, scale, zero_point, OperandLifeTime.POINTER, location, channel_quant)
        return self._add(operand)

    def integer(self, value: int) -> int:
        data = np.array(value, np.int32)
        location = DataLocation(length=4, pointer=data)
        return self._add(Operand(OperandCode.INT32, (), lifetime=OperandLifeTime.POINTER, location=location))

    def real(self, value: float) -> int:
        data = np.array(value, np.float32)
        location = DataLocation(length=4, pointer=data)
        return self._add(Operand(OperandCode.FLOAT32, (), lifetime=OperandLifeTime.POINTER, location=location))

    def half(self, value: float) -> int:
        data = np.array(value, np.float16)
        location = DataLocation(length=2, pointer=data)
        return self._add(Operand(OperandCode.FLOAT16, (), lifetime=OperandLifeTime.POINTER, location=location))

    def flag(self, value: bool) -> int:
        data = np.array(value, np.bool_)
        location = DataLocation(length=1, pointer=data)
        return self._add(Operand(OperandCode.BOOL, (), lifetime=OperandLifeTime.POINTER, location=location))

    def omitted(self, code: OperandCode = FLOAT) -> int:
        """An optional tensor without a value."""
        return self._add(Operand(code, (0,), lifetime=OperandLifeTime.NO_VALUE))

    def operation(self, code: OperationCode, inputs: Sequence[int], *outputs: int) -> None:
        self._operations.append(Operation(code, tuple(inputs), outputs))

    def turn_into_output(self, index: int) -> None:
        """Make a temporary the next output."""
        self._operands[index] = replace(self._operands[index], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        self._outputs.append(index)

    @property
    def operation_count(self) -> int:
        return len(self._operations)

    def model(self) -> Model:
        graph = Subgraph(tuple(self._operands), tuple(self._operations), tuple(self._inputs), tuple(self._outputs))
        return Model(graph)

    def _add(self, operand: Operand) -> int:
        self._operands.append(operand)
        return len(self._operands) - 1


def request(inputs: Sequence[Array], outputs: Sequence[Array]) -> Request:
    """Return a request over arrays, with the inputs' dimensions stated."""
    return Request(
        tuple(RequestArgument(location=_pointer(array), dimensions=array.shape) for array in inputs),
        tuple(RequestArgument(location=_pointer(array)) for array in outputs),
    )


def _pointer(array: Array) -> DataLocation:
    return DataLocation(length=array.nbytes, pointer=array)
