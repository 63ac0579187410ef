# SPDX-License-Identifier: Apache-2.0
"""Rows put at places: SCATTER_ND, SPARSE_TO_DENSE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.places import SUM, combined_at_computed_places, combined_at_known_places
from nn_runtime.tflite.operators.rows import computed_row_numbers, row_numbers
from nn_runtime.tflite.values import Value

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.operator import Operator


def _wanted_shape(op: Operator, position: int, name: str) -> Dimensions:
    shape = tuple(op.by_dimension(position, name))
    if not shape or min(shape) < 1:
        op.fail(f"{name} (input {position}) must be sizes > 0, got {list(shape)}")
    return shape


@converts(BuiltinOperator.SCATTER_ND, inputs=3)
def _scatter_nd(op: Operator) -> None:
    """(indices [..., columns], updates, shape): zeros, to which the updates are added, several to one place or none.

    TFLite refuses indices that are not within the shape; so are constants, but computed ones may do anything.
    """
    indices, updates, shape = op.input(0, "indices"), op.input(1, "updates"), _wanted_shape(op, 2, "shape")
    if indices.type != OperandCode.TENSOR_INT32:
        op.fail(f"indices (input 0) must be of integers, got {OperandCode(indices.type).name}")
    outer, columns = (indices.shape or ())[:-1], (indices.shape or (0,))[-1]
    if not 1 <= columns <= len(shape) or 0 in outer:
        op.fail(f"indices (input 0) must be rows of 1 to {len(shape)} columns, got {list(indices.shape or ())}")
    indexed, rest = shape[:columns], shape[columns:]
    if updates.shape != (*outer, *rest):
        op.fail(f"updates (input 1) must be {[*outer, *rest]}, got {list(updates.shape or ())}")
    rows = op.reshape(updates, (math.prod(outer), math.prod(rest)))
    if indices.data is None:
        numbers = computed_row_numbers(op, indices, indexed)
        result = combined_at_computed_places(op, rows, numbers, math.prod(indexed), SUM)
    else:
        known = row_numbers(op, indices.data.reshape(-1, columns), indexed)
        result = combined_at_known_places(op, rows, known, math.prod(indexed), SUM)
    op.result_of_same_quantization(op.reshape(result, shape))


@converts(BuiltinOperator.SPARSE_TO_DENSE, inputs=4, version=3)
def _sparse_to_dense(op: Operator) -> None:
    """(indices, shape, values, default): one value for all places or one for each; the last of a place counts."""
    indices, shape = op.array(0, "indices"), _wanted_shape(op, 1, "output_shape")
    op.integers(0, "indices")
    values, default = op.input(2, "values"), op.input(3, "default_value")
    table = indices.reshape(-1, 1) if indices.ndim < 2 else indices
    if table.ndim != 2 or table.shape[1] != len(shape) or not table.size:
        op.fail(f"indices (input 0) must be rows of {len(shape)} numbers, got {list(indices.shape)}")
    if values.shape not in ((), (len(table),)) or default.shape not in ((), (1,)):
        op.fail(f"values (input 2) must be one or {len(table)}, and default_value (input 3) one")
    size = math.prod(shape)
    op.spend(2 * size)
    places = np.full(size, -1, np.int32)
    places[row_numbers(op, table, shape)] = np.arange(len(table)) if values.rank else 0
    spread = op.rearranged(op.as_integers(values), np.maximum(places, 0))
    rest = op.broadcast(op.same_integers(op.as_integers(default), spread), (size,))
    chosen = Value(OperandCode.TENSOR_BOOL8, (size,), data=places >= 0)
    result = op.emit(OperationCode.SELECT, [chosen, spread, rest], spread)
    result = op.as_booleans(result) if values.type == OperandCode.TENSOR_BOOL8 else result
    op.result_of_same_quantization(op.reshape(result, shape))
