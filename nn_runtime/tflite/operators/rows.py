# SPDX-License-Identifier: Apache-2.0
"""What operators that find their elements by known numbers share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.values import constant, int32, real_scalar

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value


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


def gathered_or_zero(op: Operator, source: Value, axis: int, places: Array) -> Value:
    """Return elements of an axis by their numbers, and where the number is -1 zeros (the integer 0 if quantised)."""
    if source.type == OperandCode.TENSOR_BOOL8:
        return op.as_booleans(gathered_or_zero(op, op.as_integers(source), axis, places))
    op.spend(places.size)
    is_taken = places >= 0
    if is_taken.all():
        return _gathered(op, source, axis, places)
    if source.type == OperandCode.TENSOR_INT32:  # for which NNAPI has no PAD
        factors = constant(is_taken.astype(np.int32).reshape(-1, *(1,) * (source.rank - axis - 1)))
        some = _gathered(op, source, axis, np.maximum(places, 0))
        return op.emit(OperationCode.MUL, [some, factors, int32(FuseCode.NONE)], source)
    end = np.zeros((source.rank, 2), np.int32)
    end[axis, 1] = 1
    zero = int32(0) if source.is_quantized else real_scalar(source, 0.0)
    padded = op.emit(OperationCode.PAD_V2, [source, constant(end), zero], source)
    return _gathered(op, padded, axis, np.where(is_taken, places, (source.shape or ())[axis]))


def _gathered(op: Operator, source: Value, axis: int, places: Array) -> Value:
    return op.emit(OperationCode.GATHER, [source, int32(axis), constant(places.astype(np.int32))], source)
