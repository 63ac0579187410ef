# SPDX-License-Identifier: Apache-2.0
"""Elements chosen by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


def _selected(op: Operator, condition: Value, given: Value, other: Value) -> None:
    """Choose between two values; NNAPI wants one shape, so that smaller ones are repeated."""
    values = [condition, op.as_integers(given), op.as_integers(other)]
    shape = op.common_shape(*values) or (1,)
    values = [op.broadcast(value, shape) for value in values]
    if given.type == OperandCode.TENSOR_BOOL8:
        op.result(op.booleans_of(op.emit(OperationCode.SELECT, values, values[1])))
    else:
        op.result(op.emit(OperationCode.SELECT, values))


@converts(BuiltinOperator.SELECT, inputs=3, version=4)
def _select(op: Operator) -> None:
    """(condition, where true, where false): a condition of rank 1 chooses whole rows."""
    condition, given = op.input(0, "condition"), op.input(1, "x")
    if condition.rank == 1 < given.rank:
        condition = op.reshape(condition, (*(condition.shape or ()), *(1,) * (given.rank - 1)))
    _selected(op, condition, given, op.input(2, "y"))


@converts(BuiltinOperator.SELECT_V2, inputs=3, version=2)
def _select_v2(op: Operator) -> None:
    """(condition, where true, where false): all are broadcast."""
    _selected(op, op.input(0, "condition"), op.input(1, "x"), op.input(2, "y"))


@converts(BuiltinOperator.ONE_HOT, inputs=4)
def _one_hot(op: Operator) -> None:
    """(indices, depth, on value, off value)."""
    indices, depth = op.input(0, "indices"), op.integer(1, "depth")
    axis = op.axis(op.option("axis"), indices.rank + 1)
    shape = indices.shape or ()
    expanded = op.reshape(indices, (*shape[:axis], 1, *shape[axis:]))
    numbers = np.arange(depth, dtype=np.int32).reshape(-1, *(1,) * (len(shape) - axis))
    hot = op.emit(OperationCode.EQUAL, [expanded, constant(numbers)], Value(OperandCode.TENSOR_BOOL8))
    _selected(op, hot, op.input(2, "on_value"), op.input(3, "off_value"))
