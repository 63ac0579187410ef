# SPDX-License-Identifier: Apache-2.0
"""Rows of one number combined: SEGMENT_SUM, UNSORTED_SEGMENT_SUM and its kin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.places import (
    GREATEST,
    LEAST,
    PRODUCT,
    SUM,
    Combination,
    check_combined,
    combined_at_computed_places,
    combined_at_known_places,
)
from nn_runtime.tflite.values import constant

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


@converts(BuiltinOperator.SEGMENT_SUM, inputs=2)
def _segment_sum(op: Operator) -> None:
    """(data, segments): the sums of neighbours that have one number."""
    data, numbers = op.input(0, "data"), np.array(op.integers(1, "segment_ids"))
    shape = data.shape or (0,)
    if numbers.shape != shape[:1] or not np.isin(np.diff(numbers), (0, 1)).all() or numbers[:1].tolist() != [0]:
        op.fail(f"segment_ids (input 1) must be {shape[0]} numbers from 0 that rise by 0 or 1")
    count = int(numbers[-1]) + 1
    rows = op.reshape(data, (numbers.size, math.prod(shape[1:])))
    op.result(op.reshape(combined_at_known_places(op, rows, numbers, count, SUM), (count, *shape[1:])))


def _unsorted(op: Operator, how: Combination) -> None:
    """UNSORTED_SEGMENT_SUM and its kin: (data, ids of its first dimensions, count); rows of ids < 0 are dropped."""
    data, ids, count = op.input(0, "data"), op.input(1, "segment_ids"), op.integer(2, "num_segments")
    check_combined(op, data)
    shape, outer = data.shape or (), ids.shape or ()
    if ids.type != OperandCode.TENSOR_INT32 or shape[: len(outer)] != outer or 0 in shape:
        op.fail(f"segment_ids (input 1) must be integers for first dimensions of {list(shape)}, got {list(outer)}")
    if count < 1:
        op.fail(f"num_segments (input 2) must be > 0, got {count}")
    rest = shape[len(outer) :]
    rows = op.reshape(data, (math.prod(outer), math.prod(rest)))
    if ids.data is None:
        result = combined_at_computed_places(op, rows, op.reshape(ids, (-1,)), count, how)
    else:
        if int(ids.data.max()) >= count:
            op.fail(f"segment_ids (input 1) must be < {count}, got {int(ids.data.max())}")
        result = combined_at_known_places(op, rows, ids.data.reshape(-1), count, how)
    if math.isinf(how.nothing):  # TFLite starts with the greatest or least finite number
        bound = constant(np.full(1, how.of_nothing(rows.type), dtype_of(rows.type)), rows.type)
        result = how.of(op, result, bound)
    op.result(op.reshape(result, (count, *rest)))


@converts(BuiltinOperator.UNSORTED_SEGMENT_SUM, inputs=3)
def _unsorted_sum(op: Operator) -> None:
    _unsorted(op, SUM)


@converts(BuiltinOperator.UNSORTED_SEGMENT_PROD, inputs=3)
def _unsorted_prod(op: Operator) -> None:
    _unsorted(op, PRODUCT)


@converts(BuiltinOperator.UNSORTED_SEGMENT_MAX, inputs=3)
def _unsorted_max(op: Operator) -> None:
    _unsorted(op, GREATEST)


@converts(BuiltinOperator.UNSORTED_SEGMENT_MIN, inputs=3)
def _unsorted_min(op: Operator) -> None:
    _unsorted(op, LEAST)
