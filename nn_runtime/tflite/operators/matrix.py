# SPDX-License-Identifier: Apache-2.0
"""Diagonals of matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.rows import gathered_or_filled
from nn_runtime.tflite.values import Value

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator


def _diagonal(op: Operator, rows: int, columns: int) -> Array:
    """Return for each element of a matrix its place in the diagonal, -1 where it is not in it."""
    op.spend(rows * columns)
    places = np.full((rows, columns), -1, np.int32)
    np.fill_diagonal(places, np.arange(min(rows, columns)))
    return places


@converts(BuiltinOperator.MATRIX_DIAG, inputs=1)
def _matrix_diag(op: Operator) -> None:
    """(diagonals [..., size]): matrices [..., size, size] of zeros but for the diagonal."""
    source = op.input(0, "diagonal")
    if not source.rank:
        op.fail("diagonal (input 0) must have rank 1 at least, got []")
    *leading, size = source.shape or ()
    result = gathered_or_filled(op, source, source.rank - 1, _diagonal(op, size, size).reshape(-1))
    op.result_of_same_quantization(op.reshape(result, (*leading, size, size)))


@converts(BuiltinOperator.MATRIX_SET_DIAG, inputs=2)
def _matrix_set_diag(op: Operator) -> None:
    """(matrices [..., rows, columns], diagonals [..., the smaller of both])."""
    source, diagonal = op.as_integers(op.input(0, "input")), op.as_integers(op.input(1, "diagonal"))
    shape = source.shape or ()
    if source.rank < 2 or diagonal.shape != (*shape[:-2], min(shape[-2:])):
        op.fail(f"diagonal (input 1) must be that of {list(shape)}, got {list(diagonal.shape or ())}")
    places = _diagonal(op, *shape[-2:])
    op.spend(math.prod(shape))
    is_on = Value(OperandCode.TENSOR_BOOL8, shape, data=np.ascontiguousarray(np.broadcast_to(places >= 0, shape)))
    spread = gathered_or_filled(
        op, op.same_integers(diagonal, source), source.rank - 2, np.maximum(places, 0).reshape(-1)
    )
    result = op.emit(OperationCode.SELECT, [is_on, op.reshape(spread, shape), source], source)
    is_boolean = op.input(0, "input").type == OperandCode.TENSOR_BOOL8
    op.result_of_same_quantization(op.as_booleans(result) if is_boolean else result)
