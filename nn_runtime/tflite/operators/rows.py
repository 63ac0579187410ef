# SPDX-License-Identifier: Apache-2.0
"""What operators that find their elements by known numbers share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.operators.concatenation import joined, split_evenly
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, real_scalar, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator

_NUMBERS, _BOOLEANS = Value(OperandCode.TENSOR_INT32), Value(OperandCode.TENSOR_BOOL8)


def row_numbers(op: Operator, indices: Array, indexed: Dimensions) -> Array:
    """Return the numbers, in row-major order, of indices [rows, dimensions] into a shape; each must be within it."""
    if math.prod(indexed) > np.iinfo(np.int32).max:
        op.fail(f"rows of {list(indexed)} must have numbers of 32 bits")
    if not ((indices >= 0) & (indices < np.array(indexed))).all():
        op.fail(f"indices must be within {list(indexed)}")
    op.spend(len(indices))
    strides = [math.prod(indexed[axis + 1 :]) for axis in range(len(indexed))]
    numbers: Array = indices.astype(np.int64) @ np.array(strides, np.int64)
    return numbers.astype(np.int32)


def computed_row_numbers(op: Operator, indices: Value, indexed: Dimensions) -> Value:
    """Return the numbers [rows] of indices [..., dimensions] that are not known: columns times the rows they skip.

    Of indices that are not within the shape the number is < 0 or not below that of the rows.
    """
    count = len(indexed)
    table = op.reshape(indices, (math.prod((indices.shape or ())[:-1]), count))
    if count == 1:
        return op.reshape(table, (-1,))
    columns = split_evenly(op, table, 1, count)
    total = columns[-1]
    for axis, column in enumerate(columns[:-1]):
        stride = int32_vector([math.prod(indexed[axis + 1 :])])
        skipped = op.emit(OperationCode.MUL, [column, stride, int32(FuseCode.NONE)], _NUMBERS)
        total = op.emit(OperationCode.ADD, [total, skipped, int32(FuseCode.NONE)], _NUMBERS)
    every = [are_within(op, table, indexed), int32_vector([1]), scalar(OperandCode.BOOL, False)]
    is_inside = op.emit(OperationCode.REDUCE_ALL, every, _BOOLEANS)
    return number_or(op, is_inside, op.reshape(total, (-1,)), -1)


def are_within(op: Operator, indices: Value, sizes: Sequence[int]) -> Value:
    """Return which integers are at least 0 and below sizes, one for all or one for each of the last axis."""
    is_at_least_0 = op.emit(OperationCode.GREATER_EQUAL, [indices, int32_vector([0])], _BOOLEANS)
    is_below_size = op.emit(OperationCode.LESS, [indices, int32_vector(sizes)], _BOOLEANS)
    return op.emit(OperationCode.LOGICAL_AND, [is_at_least_0, is_below_size], _BOOLEANS)


def number_or(op: Operator, is_inside: Value, numbers: Value, outside: int) -> Value:
    """Return numbers, and another one in place of those that are not inside."""
    return op.emit(OperationCode.SELECT, [is_inside, numbers, constant(op.filled(numbers, outside, np.int32))], numbers)


def gathered_or_filled(op: Operator, source: Value, axis: int, places: Array, filling: float = 0) -> Value:
    """Return elements of an axis by their numbers, and where the number is -1 `filling` (the integer if quantised)."""
    if source.type == OperandCode.TENSOR_BOOL8:
        return op.as_booleans(gathered_or_filled(op, op.as_integers(source), axis, places, filling))
    op.spend(places.size)
    is_taken = places >= 0
    if is_taken.all():
        return _gathered(op, source, axis, places)
    if source.type == OperandCode.TENSOR_INT32:  # quicker than `with_filling`
        some = _gathered(op, source, axis, np.maximum(places, 0))
        alone = (-1, *(1,) * (source.rank - axis - 1))
        factors, rest = (constant(part.astype(np.int32).reshape(alone)) for part in (is_taken, ~is_taken * filling))
        kept = op.emit(OperationCode.MUL, [some, factors, int32(FuseCode.NONE)], source)
        return op.emit(OperationCode.ADD, [kept, rest, int32(FuseCode.NONE)], source) if filling else kept
    padded = with_filling(op, source, axis, filling)
    return _gathered(op, padded, axis, np.where(is_taken, places, (source.shape or ())[axis]))


def placed(op: Operator, source: Value, numbers: Array, filling: float = 0) -> Value:
    """Return elements by their numbers in row-major order, in the numbers' shape, and for a number -1 `filling`."""
    flat = gathered_or_filled(op, op.reshape(source, (-1,)), 0, numbers.reshape(-1), filling)
    return op.reshape(flat, numbers.shape)


def with_filling(op: Operator, source: Value, axis: int, filling: float = 0) -> Value:
    """Return a value, of no booleans, with one more element along an axis, of one number (the integer if quantised)."""
    if source.type == OperandCode.TENSOR_INT32:  # for which NNAPI has no PAD
        shape = source.shape or ()
        row = constant(np.full((*shape[:axis], 1, *shape[axis + 1 :]), filling, np.int32))
        return joined(op, [source, row], axis, source)
    end = np.zeros((source.rank, 2), np.int32)
    end[axis, 1] = 1
    number = int32(int(filling)) if source.is_quantized else real_scalar(source, filling)
    return op.emit(OperationCode.PAD_V2, [source, constant(end), number], source)


def _gathered(op: Operator, source: Value, axis: int, places: Array) -> Value:
    return op.emit(OperationCode.GATHER, [source, int32(axis), constant(places.astype(np.int32))], source)
