# SPDX-License-Identifier: Apache-2.0
"""StableHLO's functions of one or two elements, as PyTorch's exporter leaves them in computations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.whole_numbers import as_output, whole_numbers
from nn_runtime.tflite.values import Value, constant, int32

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


def same_shapes(op: Operator) -> tuple[Value, Value]:
    """Return both inputs, of one type and shape."""
    first, second = op.input(0, "lhs"), op.input(1, "rhs")
    if first.type != second.type or first.shape != second.shape:
        wanted, given = (f"{OperandCode(one.type).name} {list(one.shape or ())}" for one in (first, second))
        op.fail(f"rhs (input 1) must be {wanted} as lhs, got {given}")
    return first, second


def _combined(op: Operator, code: OperationCode, of_booleans: OperationCode) -> None:
    """Emit ADD or MUL; of bytes the lowest bits are kept, whatever their scale."""
    first, second = same_shapes(op)
    if first.type == OperandCode.TENSOR_BOOL8:
        op.result(op.emit(of_booleans, [first, second]))
        return
    is_of_bytes = first.type in QUANT8_TYPES
    values = [whole_numbers(op, value) if is_of_bytes else value for value in (first, second)]
    op.result(as_output(op, op.emit(code, [*values, int32(FuseCode.NONE)], values[0])))


def _extremum(op: Operator, code: OperationCode, of_booleans: OperationCode) -> None:
    """Emit MAXIMUM or MINIMUM, of raw integers where they have a scale."""
    first, second = same_shapes(op)
    if first.type == OperandCode.TENSOR_BOOL8:
        op.result(op.emit(of_booleans, [first, second]))
        return
    result = op.emit(code, [first, op.same_integers(second, first)], first)
    op.result_of_same_quantization(result)


@converts(BuiltinOperator.STABLEHLO_ADD, inputs=2)
def _add(op: Operator) -> None:
    _combined(op, OperationCode.ADD, OperationCode.LOGICAL_OR)


@converts(BuiltinOperator.STABLEHLO_MULTIPLY, inputs=2)
def _multiply(op: Operator) -> None:
    _combined(op, OperationCode.MUL, OperationCode.LOGICAL_AND)


@converts(BuiltinOperator.STABLEHLO_MAXIMUM, inputs=2)
def _maximum(op: Operator) -> None:
    _extremum(op, OperationCode.MAXIMUM, OperationCode.LOGICAL_OR)


@converts(BuiltinOperator.STABLEHLO_MINIMUM, inputs=2)
def _minimum(op: Operator) -> None:
    _extremum(op, OperationCode.MINIMUM, OperationCode.LOGICAL_AND)


@converts(BuiltinOperator.STABLEHLO_CBRT, inputs=1)
def _cube_root(op: Operator) -> None:
    """(operand): a power of its size, and its sign; of FLOAT16 in FLOAT32, as half precision has no good third."""
    source = op.input(0, "operand")
    if source.type not in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16):
        op.fail(f"operand (input 0) must be FLOAT32 or FLOAT16, got {OperandCode(source.type).name}")
    kind = Value(OperandCode.TENSOR_FLOAT32)
    is_single = source.type == kind.type
    value = source if is_single else op.emit(OperationCode.CAST, [source], kind)
    zero, third = (constant(np.full(1, number, np.float32)) for number in (0, 1 / 3))
    root = op.emit(OperationCode.POW, [op.emit(OperationCode.ABS, [value], kind), third], kind)
    is_below = op.emit(OperationCode.LESS, [value, zero], Value(OperandCode.TENSOR_BOOL8))
    result = op.emit(OperationCode.SELECT, [is_below, op.emit(OperationCode.NEG, [root], kind), root], kind)
    op.result(result if is_single else op.emit(OperationCode.CAST, [result]))
