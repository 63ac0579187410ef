# SPDX-License-Identifier: Apache-2.0
"""Sums of all that comes before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.rows import gathered_or_filled
from nn_runtime.tflite.values import constant, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_SUMMED = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_INT32)


@converts(BuiltinOperator.CUMSUM, inputs=2)
def _cumsum(op: Operator) -> None:
    """(input, axis): the input plus itself moved on by 1, that plus itself moved on by 2, then by 4 and so on.

    A product with a triangular matrix would be one operation, but an infinity times 0 would spoil what comes before it.
    """
    source = op.input(0, "input")
    if source.type not in _SUMMED:
        op.fail(f"input (input 0) must be FLOAT32, INT32 or INT64, got {OperandCode(source.type).name}")
    axis = op.axis(op.integer(1, "axis"), source.rank)
    total = _moved_on(op, source, axis, 1) if op.option("exclusive") else source
    distance = 1
    while distance < (source.shape or ())[axis]:
        inputs = [total, _moved_on(op, total, axis, distance), int32(FuseCode.NONE)]
        total = op.emit(OperationCode.ADD, inputs, source)
        distance *= 2
    op.result(total)


def _moved_on(op: Operator, value: Value, axis: int, distance: int) -> Value:
    """Return a value moved along an axis, to its end or (reverse) to its front; zeros follow."""
    shape, is_reverse = value.shape or (), bool(op.option("reverse"))
    kept = shape[axis] - distance
    if value.type == OperandCode.TENSOR_INT32:
        places = np.arange(shape[axis]) + (distance if is_reverse else -distance)
        return gathered_or_filled(op, value, axis, np.where(places < shape[axis], np.maximum(places, -1), -1))
    if kept <= 0:
        return constant(op.filled(value, 0, dtype_of(value.type)), value.type)
    begin, size, zeros = [0] * len(shape), list(shape), np.zeros((len(shape), 2), np.int32)
    begin[axis], size[axis] = (distance if is_reverse else 0), kept
    zeros[axis, int(is_reverse)] = distance
    part = op.emit(OperationCode.SLICE, [value, int32_vector(begin), int32_vector(size)], value)
    return op.emit(OperationCode.PAD, [part, constant(zeros)], value)
