# SPDX-License-Identifier: Apache-2.0
"""The models that VTS makes itself: convolutions and additions for memory domains, chains for caches, a cycle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

INPUT, OUTPUT = OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT
TYPES = (
    OperandCode.TENSOR_FLOAT32,
    OperandCode.TENSOR_FLOAT16,
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
)
DIMS = (1, 32, 32, 8)
PADDING_SAME = 1


@dataclass
class Constants:
    """Inline constants of a model."""

    data: bytes = b""

    def add(self, code: int, array: Array) -> Operand:
        """Return an operand that holds an array."""
        self.data += bytes(-len(self.data) % 64)
        location = DataLocation(offset=len(self.data), length=array.nbytes)
        self.data += array.tobytes()
        return Operand(code, array.shape, lifetime=OperandLifeTime.CONSTANT_COPY, location=location)


def is_float(code: int) -> bool:
    return code in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)


def argument_operand(code: int, dims: Dimensions = DIMS) -> Operand:
    """Return the input that the models below are made for."""
    return Operand(code, dims, scale=0.0 if is_float(code) else 0.5, lifetime=INPUT)


def conv_model(operand: Operand, count: int = 1) -> Model:
    """Return `count` convolutions side by side, each of which gives what it takes."""
    constants = Constants()
    depth = operand.dimensions[3]
    floating = is_float(operand.type)
    bias_code = operand.type if floating else OperandCode.TENSOR_INT32
    operands: list[Operand] = []
    operations = []
    for _ in range(count):
        first = len(operands)
        identity = np.zeros((depth, 3, 3, depth), dtype_of(operand.type))
        identity[:, 1, 1, :] = np.eye(depth)
        weights = constants.add(operand.type, identity)
        bias = constants.add(bias_code, np.zeros(depth, dtype_of(bias_code)))
        operands += [
            operand,
            replace(weights, scale=0.0 if floating else 1.0),
            replace(bias, scale=0.0 if floating else operand.scale),
            *(constants.add(OperandCode.INT32, np.int32(value)[()]) for value in (PADDING_SAME, 1, 1, 0)),
            replace(operand, lifetime=OUTPUT),
        ]
        operations.append(Operation(OperationCode.CONV_2D, tuple(range(first, first + 7)), (first + 7,)))
    inputs = tuple(op.inputs[0] for op in operations)
    outputs = tuple(op.outputs[0] for op in operations)
    return Model(Subgraph(tuple(operands), tuple(operations), inputs, outputs), operand_values=constants.data)


def add_model(operand: Operand) -> Model:
    """Return an addition whose activation is an input: a scalar role."""
    operands = (operand, operand, Operand(OperandCode.INT32, lifetime=INPUT), replace(operand, lifetime=OUTPUT))
    return Model(Subgraph(operands, (Operation(OperationCode.ADD, (0, 1, 2), (3,)),), (0, 1, 2), (3,)))


def chain_model(code: OperationCode, operand_type: int, length: int = 100) -> Model:
    """Return a chain of ADD or MUL with a one of its own for each: ADD adds `length` in all, MUL changes nothing."""
    constants = Constants()
    quantized = operand_type == OperandCode.TENSOR_QUANT8_ASYMM
    # As VTS has it: an 8-bit product needs a finer scale going in than coming out.
    scale = 1.0 if quantized else 0.0
    factor = 0.5 if code == OperationCode.MUL and quantized else scale
    one = np.array([2 if factor == 0.5 else 1], dtype_of(operand_type))
    operands = [
        constants.add(OperandCode.INT32, np.int32(0)[()]),
        Operand(operand_type, (1,), scale, lifetime=INPUT),
    ]
    operations = []
    for step in range(length):
        lifetime = OUTPUT if step == length - 1 else OperandLifeTime.TEMPORARY_VARIABLE
        operands += [
            replace(constants.add(operand_type, one), scale=factor),
            Operand(operand_type, (1,), scale, lifetime=lifetime),
        ]
        operations.append(Operation(code, (2 * step + 1, 2 * step + 2, 0), (2 * step + 3,)))
    main = Subgraph(tuple(operands), tuple(operations), (1,), (2 * length + 1,))
    return Model(main, operand_values=constants.data)


def cycle_model() -> Model:
    """Return three additions of which two read what the other writes."""
    tensor = Operand(OperandCode.TENSOR_FLOAT32, (1,))
    operands = (
        replace(tensor, lifetime=INPUT),
        replace(tensor, lifetime=INPUT),
        Operand(OperandCode.INT32, lifetime=INPUT),
        tensor,
        tensor,
        replace(tensor, lifetime=OUTPUT),
    )
    add = OperationCode.ADD
    operations = (Operation(add, (0, 4, 2), (3,)), Operation(add, (1, 3, 2), (4,)), Operation(add, (4, 0, 2), (5,)))
    return Model(Subgraph(operands, operations, (0, 1, 2), (5,)))


def circular_references() -> Model:
    """Return a model with two referenced models, each of which refers to the other by an IF."""
    condition = Operand(OperandCode.TENSOR_BOOL8, (1,), lifetime=INPUT)
    tensor = Operand(OperandCode.TENSOR_FLOAT32, (1,), lifetime=INPUT)

    def choice(then: int, otherwise: int) -> Subgraph:
        branches = (
            Operand(OperandCode.MODEL, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(offset=at))
            for at in (then, otherwise)
        )
        operands = (condition, *branches, tensor, replace(tensor, lifetime=OUTPUT))
        return Subgraph(operands, (Operation(OperationCode.IF, (0, 1, 2, 0, 3), (4,)),), (0, 3), (4,))

    return Model(choice(0, 1), (choice(1, 1), choice(0, 0)))
