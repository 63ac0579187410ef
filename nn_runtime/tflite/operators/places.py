# SPDX-License-Identifier: Apache-2.0
"""Rows put at places by their numbers, where rows of one place become one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.operators.concatenation import joined
from nn_runtime.tflite.operators.rows import gathered_or_filled, with_filling
from nn_runtime.tflite.values import Value, constant, int32, int32_vector
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_COMBINED = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_INT32)
_INTEGERS, _BOOLEANS = Value(OperandCode.TENSOR_INT32), Value(OperandCode.TENSOR_BOOL8)
_MAX_SORTED = 1 << 16
"""Rows; to sort them takes a GPU as many comparisons as the square of it."""
_DROPPED, _NO_ROW = -1, -2


@dataclass(frozen=True)
class Combination:
    """How two rows become one, and what a place without any has: an infinity stands for the bound of its type."""

    code: OperationCode
    nothing: float

    def of_nothing(self, kind: int) -> float:
        """Return what a place without rows has of a type (the integer if it is quantised)."""
        if not self.nothing:
            return 0
        dtype = dtype_of(kind)
        info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        return min(max(self.nothing, float(info.min)), float(info.max))

    def of(self, op: Operator, first: Value, second: Value) -> Value:
        """Return two values as one."""
        activation = [int32(FuseCode.NONE)] if self.code in (OperationCode.ADD, OperationCode.MUL) else []
        return op.emit(self.code, [first, second, *activation], first)


SUM, PRODUCT = Combination(OperationCode.ADD, 0), Combination(OperationCode.MUL, 1)
GREATEST, LEAST = Combination(OperationCode.MAXIMUM, -math.inf), Combination(OperationCode.MINIMUM, math.inf)
ALL, ANY = Combination(OperationCode.LOGICAL_AND, 1), Combination(OperationCode.LOGICAL_OR, 0)


def combined_at_known_places(op: Operator, rows: Value, numbers: Array, count: int, how: Combination) -> Value:
    """Return [count, ...]: for each number the combination of the rows that have it; rows of numbers < 0 are dropped.

    Rows of one number become neighbours. With each its next one of that number is combined, then the second next with
    these, then the fourth next and so on: the first of each number is the combination of all.
    """
    op.spend(2 * numbers.size + count)
    order = np.argsort(numbers, kind="stable")
    order = order[numbers[order] >= 0]
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    repeats = int(np.diff(starts, append=ordered.size).max(initial=0))
    nothing = how.of_nothing(rows.type)
    if repeats > 1:
        check_combined(op, rows)
        if not np.array_equal(order, np.arange(numbers.size)):
            rows, order = gathered_or_filled(op, rows, 0, order), np.arange(order.size)
    distance = 1
    while distance < repeats:
        followers = np.arange(ordered.size) + distance
        is_own = np.append(ordered, np.full(distance, -1))[followers] == ordered
        rows = how.of(op, rows, gathered_or_filled(op, rows, 0, np.where(is_own, followers, -1), nothing))
        distance *= 2
    places = np.full(count, -1, np.int32)
    places[ordered[starts]] = order[starts]
    return gathered_or_filled(op, rows, 0, places, nothing)


def combined_at_computed_places(op: Operator, rows: Value, numbers: Value, count: int, how: Combination) -> Value:
    """Return the same for numbers [rows] that are computed; rows of numbers >= count are dropped too.

    As a product with a matrix of ones and zeros would be spoilt by infinities, rows are sorted, those of a place are
    combined as above, and each place looks for its first one. Behind all is one without effect: the follower of the
    last, and the row of places without any.
    """
    size, nothing = (rows.shape or ())[0], how.of_nothing(rows.type)
    if rows.type == OperandCode.TENSOR_BOOL8:
        return op.as_booleans(combined_at_computed_places(op, op.as_integers(rows), numbers, count, how))
    if size == 1:
        return _at_one_place(op, with_filling(op, rows, 0, nothing), numbers, count)
    check_combined(op, rows)
    if size > _MAX_SORTED:
        op.fail(f"at most {_MAX_SORTED} rows at computed places are supported, got {size}")
    dropped = op.emit(OperationCode.MAXIMUM, [numbers, int32_vector([_DROPPED])], _INTEGERS)
    ordered, order = _sorted(op, joined(op, [dropped, int32_vector([_NO_ROW])], 0, _INTEGERS))
    rows = _gathered(op, with_filling(op, rows, 0, nothing), order)
    distance = 1
    while distance < size:
        op.spend(2 * (size + 1))
        followers = constant(np.minimum(np.arange(size + 1, dtype=np.int32) + distance, size))
        is_own = op.emit(OperationCode.EQUAL, [_gathered(op, ordered, followers), ordered], _BOOLEANS)
        own = op.emit(OperationCode.SELECT, [is_own, followers, _repeated(size, size + 1)], _INTEGERS)
        rows = how.of(op, rows, _gathered(op, rows, own))
        distance *= 2
    op.spend(3 * count)
    places = constant(np.arange(count, dtype=np.int32))
    first = _number_above(op, ordered, places)
    is_there = op.emit(OperationCode.EQUAL, [_gathered(op, ordered, first), places], _BOOLEANS)
    return _gathered(op, rows, op.emit(OperationCode.SELECT, [is_there, first, _repeated(size, count)], _INTEGERS))


def _number_above(op: Operator, ordered: Value, places: Value) -> Value:
    """Return for each place how many of falling numbers, of which the last never is, are greater: by bisection."""
    count, size = (places.shape or ())[0], (ordered.shape or ())[0]
    step = 1 << (size - 1).bit_length() - 1
    rest = max(2 * step - 1 - size, 0)
    op.spend(rest)
    # Number n is at n, so that all steps fit in: the first at 1.
    numbers = joined(op, [int32_vector([0]), ordered, *([_repeated(_NO_ROW, rest)] if rest else [])], 0, _INTEGERS)
    above = _repeated(0, count)
    while step:
        further = op.emit(OperationCode.ADD, [above, int32_vector([step]), int32(FuseCode.NONE)], _INTEGERS)
        is_above = op.emit(OperationCode.GREATER, [_gathered(op, numbers, further), places], _BOOLEANS)
        above = op.emit(OperationCode.SELECT, [is_above, further, above], _INTEGERS)
        step //= 2
    return above


def check_combined(op: Operator, rows: Value) -> None:
    """Refuse types of which rows cannot be combined."""
    if rows.type not in _COMBINED:
        op.fail(f"several rows at one place are supported for FLOAT32 and INT32, got {OperandCode(rows.type).name}")


def _at_one_place(op: Operator, row_and_filling: Value, number: Value, count: int) -> Value:
    op.spend(2 * count)
    places = constant(np.arange(count, dtype=np.int32))
    is_place = op.emit(OperationCode.EQUAL, [places, number], _BOOLEANS)
    chosen = op.emit(OperationCode.SELECT, [is_place, *(_repeated(which, count) for which in (0, 1))], _INTEGERS)
    return _gathered(op, row_and_filling, chosen)


def _sorted(op: Operator, keys: Value) -> tuple[Value, Value]:
    """Return keys in falling order and where they were."""
    size = (keys.shape or ())[0]
    ordered, order = op.emit_many(OperationCode.TOPK_V2, [keys, int32(size)], [_INTEGERS, _INTEGERS])
    return ordered, order


def _gathered(op: Operator, source: Value, numbers: Value) -> Value:
    return op.emit(OperationCode.GATHER, [source, int32(0), numbers], source)


def _repeated(number: int, count: int) -> Value:
    return constant(np.full(count, number, np.int32))
