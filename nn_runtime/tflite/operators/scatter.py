# SPDX-License-Identifier: Apache-2.0
"""Rows put at known places: SCATTER_ND, SEGMENT_SUM, SPARSE_TO_DENSE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.rows import gathered_or_zero, row_numbers
from nn_runtime.tflite.values import Value, int32

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator

_SUMMED = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_INT32)


def _wanted_shape(op: Operator, position: int, name: str) -> Dimensions:
    shape = tuple(op.by_dimension(position, name))
    if not shape or min(shape) < 1:
        op.fail(f"{name} (input {position}) must be sizes > 0, got {list(shape)}")
    return shape


@converts(BuiltinOperator.SCATTER_ND, inputs=3)
def _scatter_nd(op: Operator) -> None:
    """(indices [..., columns], updates, shape): zeros, to which the updates are added, several to one place or none."""
    indices, updates, shape = op.array(0, "indices"), op.input(1, "updates"), _wanted_shape(op, 2, "shape")
    op.integers(0, "indices")
    columns = indices.shape[-1] if indices.ndim else 0
    if not 1 <= columns <= len(shape) or not indices.size:
        op.fail(f"indices (input 0) must be rows of 1 to {len(shape)} columns, got {list(indices.shape)}")
    wanted = (*indices.shape[:-1], *shape[columns:])
    if updates.shape != wanted:
        op.fail(f"updates (input 1) must be {list(wanted)}, got {list(updates.shape or ())}")
    numbers = row_numbers(op, indices.reshape(-1, columns), shape[:columns])
    rows = op.reshape(updates, (numbers.size, math.prod(shape[columns:])))
    op.result_of_same_quantization(op.reshape(_summed(op, rows, numbers, math.prod(shape[:columns])), shape))


@converts(BuiltinOperator.SEGMENT_SUM, inputs=2)
def _segment_sum(op: Operator) -> None:
    """(data, segments): the sums of neighbours that have one number."""
    data, numbers = op.input(0, "data"), np.array(op.integers(1, "segment_ids"))
    shape = data.shape or (0,)
    if numbers.shape != shape[:1] or not np.isin(np.diff(numbers), (0, 1)).all() or numbers[:1].tolist() != [0]:
        op.fail(f"segment_ids (input 1) must be {shape[0]} numbers from 0 that rise by 0 or 1")
    count = int(numbers[-1]) + 1
    rows = op.reshape(data, (numbers.size, math.prod(shape[1:])))
    op.result(op.reshape(_summed(op, rows, numbers, count), (count, *shape[1:])))


def _summed(op: Operator, rows: Value, numbers: Array, count: int) -> Value:
    """Return for each number the sum of the rows that have it; zeros where there is none.

    Rows of one number become neighbours. To each its next one of that number is added, then the second next to these
    sums, then the fourth next and so on: the first of each number is the sum of all.
    """
    op.spend(2 * numbers.size + count)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    repeats = int(np.diff(starts, append=ordered.size).max())
    if repeats > 1 and rows.type not in _SUMMED:
        op.fail(f"several rows at one place are supported for FLOAT32 and INT32, got {OperandCode(rows.type).name}")
    if repeats > 1 and (np.diff(order) != 1).any():
        rows, order = gathered_or_zero(op, rows, 0, order), np.arange(order.size)
    distance = 1
    while distance < repeats:
        followers = np.arange(ordered.size) + distance
        is_own = np.append(ordered, np.full(distance, -1))[followers] == ordered
        others = gathered_or_zero(op, rows, 0, np.where(is_own, followers, -1))
        rows = op.emit(OperationCode.ADD, [rows, others, int32(FuseCode.NONE)], rows)
        distance *= 2
    places = np.full(count, -1, np.int32)
    places[ordered[starts]] = order[starts]
    return gathered_or_zero(op, rows, 0, places)


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
