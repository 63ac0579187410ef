# SPDX-License-Identifier: Apache-2.0
"""Operations on integers that NNAPI has for real numbers alone, of those that it has; overflow wraps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_NO_ACTIVATION = int32(FuseCode.NONE)
_INTEGERS = Value(OperandCode.TENSOR_INT32)


def reduced(op: Operator, code: OperationCode, source: Value, axes: Sequence[int]) -> Value:
    """Return the sum, product, greatest or least of integers over some axes, as a vector: the others, row by row."""
    shape = source.shape or ()
    kept = [axis for axis in range(source.rank) if axis not in axes]
    count = math.prod(shape[axis] for axis in axes)
    if kept and kept[-1] > min(axes):
        order = op.numbers(source).transpose(*kept, *axes).reshape(-1)
        source = op.rearranged(source, order)
    rows = op.reshape(source, (math.prod(shape[axis] for axis in kept), count))
    if code == OperationCode.REDUCE_SUM:
        return _sums(op, rows, count)
    if code == OperationCode.REDUCE_PROD:
        return _products(op, rows, count)
    if code == OperationCode.REDUCE_MAX:
        return _greatest(op, rows)
    return _complement(op, _greatest(op, _complement(op, rows)))


def truncated_quotient(op: Operator, first: Value, second: Value) -> Value:
    """Return quotients rounded towards zero; NNAPI rounds them down."""
    down = op.emit(OperationCode.DIV, [first, second, _NO_ACTIVATION], _INTEGERS)
    product = op.emit(OperationCode.MUL, [down, second, _NO_ACTIVATION], _INTEGERS)
    zero, one = (constant(np.array([number], np.int32)) for number in (0, 1))
    flag = Value(OperandCode.TENSOR_BOOL8)
    is_cut = op.emit(OperationCode.NOT_EQUAL, [product, first], flag)
    is_negative = op.emit(OperationCode.LESS, [down, zero], flag)
    both = op.emit(OperationCode.LOGICAL_AND, [is_cut, is_negative], flag)
    up = op.emit(OperationCode.ADD, [down, one, _NO_ACTIVATION], _INTEGERS)
    return op.emit(OperationCode.SELECT, [both, up, down], _INTEGERS)


def _sums(op: Operator, rows: Value, count: int) -> Value:
    op.spend(count)
    flag = scalar(OperandCode.BOOL, False)
    return op.emit(
        OperationCode.BATCH_MATMUL,
        [op.reshape(rows, (1, -1, count)), constant(np.ones((1, count, 1), np.int32)), flag, flag],
        _INTEGERS,
    )


def _products(op: Operator, rows: Value, count: int) -> Value:
    """Multiply the first half of every row by the second until one is left of each; odd ones wait."""
    waiting: list[Value] = []
    while count > 1:
        half = count // 2
        if count % 2:
            waiting.append(_columns(op, rows, count - 1, 1))
        parts = (_columns(op, rows, begin, half) for begin in (0, half))
        rows, count = op.emit(OperationCode.MUL, [*parts, _NO_ACTIVATION], _INTEGERS), half
    for one in waiting:
        rows = op.emit(OperationCode.MUL, [rows, one, _NO_ACTIVATION], _INTEGERS)
    return rows


def _columns(op: Operator, rows: Value, begin: int, count: int) -> Value:
    inputs = [rows, int32_vector((0, begin)), int32_vector((-1, count))]
    return op.emit(OperationCode.SLICE, inputs, _INTEGERS)


def _greatest(op: Operator, rows: Value) -> Value:
    return op.emit_many(OperationCode.TOPK_V2, [rows, int32(1)], [_INTEGERS, _INTEGERS])[0]


def _complement(op: Operator, value: Value) -> Value:
    """Return -1 - x, which turns the order around."""
    return op.emit(OperationCode.SUB, [constant(np.array([-1], np.int32)), value, _NO_ACTIVATION], _INTEGERS)
