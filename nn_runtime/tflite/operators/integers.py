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

    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_NO_ACTIVATION = int32(FuseCode.NONE)
_INTEGERS = Value(OperandCode.TENSOR_INT32)
_BOUNDS = {FuseCode.RELU: (0, None), FuseCode.RELU1: (-1, 1), FuseCode.RELU6: (0, 6)}


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
    product = _product(op, down, second)
    zero, one = (constant(np.array([number], np.int32)) for number in (0, 1))
    flag = Value(OperandCode.TENSOR_BOOL8)
    is_cut = op.emit(OperationCode.NOT_EQUAL, [product, first], flag)
    is_negative = op.emit(OperationCode.LESS, [down, zero], flag)
    both = op.emit(OperationCode.LOGICAL_AND, [is_cut, is_negative], flag)
    up = op.emit(OperationCode.ADD, [down, one, _NO_ACTIVATION], _INTEGERS)
    return op.emit(OperationCode.SELECT, [both, up, down], _INTEGERS)


def activated(op: Operator, value: Value, activation: FuseCode) -> Value:
    """Return integers between the bounds of an activation, which NNAPI fuses to real numbers alone."""
    bounds = _BOUNDS.get(activation, (None, None))
    for code, bound in zip((OperationCode.MAXIMUM, OperationCode.MINIMUM), bounds, strict=True):
        if bound is not None:
            value = op.emit(code, [value, int32_vector([bound])], _INTEGERS)
    return value


def power(op: Operator, base: Value, exponents: Array) -> Value:
    """Return integers to known powers by squaring: the product of those squares that the bits of a power name."""
    if exponents.size and int(exponents.min()) < 0:
        op.fail(f"exponents (input 1) of integers must be >= 0, got {int(exponents.min())}")
    shape, square = op.common_shape(base, constant(exponents)), base
    result: Value | None = None
    while exponents.any():
        factor = _where_odd(op, square, exponents)
        result = factor if result is None else _product(op, result, factor)
        exponents = exponents >> 1
        square = _product(op, square, square) if exponents.any() else square
    return op.broadcast(constant(np.ones(1, np.int32)) if result is None else result, shape or (1,))


def _product(op: Operator, first: Value, second: Value) -> Value:
    return op.emit(OperationCode.MUL, [first, second, _NO_ACTIVATION], _INTEGERS)


def _where_odd(op: Operator, value: Value, exponents: Array) -> Value:
    """Return a value where an exponent is odd, and 1 elsewhere."""
    bits = exponents & 1
    if bits.all():
        return value
    less = op.emit(OperationCode.SUB, [value, int32_vector([1]), _NO_ACTIVATION], _INTEGERS)
    chosen = _product(op, less, constant(bits))
    return op.emit(OperationCode.ADD, [chosen, int32_vector([1]), _NO_ACTIVATION], _INTEGERS)


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
        rows, count = _product(op, *parts), half
    for one in waiting:
        rows = _product(op, rows, one)
    return rows


def _columns(op: Operator, rows: Value, begin: int, count: int) -> Value:
    inputs = [rows, int32_vector((0, begin)), int32_vector((-1, count))]
    return op.emit(OperationCode.SLICE, inputs, _INTEGERS)


def _greatest(op: Operator, rows: Value) -> Value:
    return op.emit_many(OperationCode.TOPK_V2, [rows, int32(1)], [_INTEGERS, _INTEGERS])[0]


def _complement(op: Operator, value: Value) -> Value:
    """Return -1 - x, which turns the order around."""
    return op.emit(OperationCode.SUB, [constant(np.array([-1], np.int32)), value, _NO_ACTIVATION], _INTEGERS)
