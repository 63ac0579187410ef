# SPDX-License-Identifier: Apache-2.0
"""NON_MAX_SUPPRESSION_V4 and V5: the best boxes one after another, each without those that overlap a better one.

NNAPI has operations for detections, but none that says which boxes it took. So ARGMAX finds each box, which then takes
out those that it overlaps, or lowers their scores. As in LiteRT, a box that does not take out itself, such as one
without an area, is taken again, as long as there were so many candidates. Of equal scores the first one is taken, while
LiteRT takes any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_OPERATIONS, _SOFT_OPERATIONS = 16, 22
"""Of the step that selects one box."""
_MAX_BOXES = 1 << 24
"""Their number is exact in float32."""
_OUT = float(np.finfo(np.float32).min)
"""The score of a box that is no candidate any more."""
_LEAST_AREA = float(np.finfo(np.float32).tiny)
"""So that boxes without an area overlap by 0 / 1, not by 0 / 0."""
_REAL, _INTEGER, _BOOLEAN = (
    Value(code) for code in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8)
)


@dataclass(frozen=True)
class _Boxes:
    """The least and the greatest y and x of boxes, [2, count] each, and their areas [1, count]."""

    starts: Value
    ends: Value
    areas: Value


@converts(BuiltinOperator.NON_MAX_SUPPRESSION_V4, inputs=5, outputs=2)
def _suppress(op: Operator) -> None:
    """(boxes [count, 4], scores [count], max_output_size, iou_threshold, score_threshold) -> indices, their number."""
    indices, _, number = _selected(op, 0.0)
    op.result(indices, 0)
    op.result(number, 1)


@converts(BuiltinOperator.NON_MAX_SUPPRESSION_V5, inputs=6, outputs=3)
def _suppress_softly(op: Operator) -> None:
    """(as V4, soft_nms_sigma) -> indices, scores, their number. A sigma > 0 lowers the scores of overlapped boxes."""
    sigma = _number(op, 5, "soft_nms_sigma")
    if not sigma >= 0:
        op.fail(f"soft_nms_sigma (input 5) must be >= 0, got {sigma}")
    for position, value in enumerate(_selected(op, sigma)):
        op.result(value, position)


def _selected(op: Operator, sigma: float) -> tuple[Value, Value, Value]:
    """Return indices and scores of the selected boxes, zeros behind them, and their number."""
    corners, scores = _real_input(op, 0, "boxes", 2), _real_input(op, 1, "scores", 1)
    count, depth = corners.shape or (0, 0)
    if depth != 4 or count > _MAX_BOXES:
        op.fail(f"boxes (input 0) must be [count, 4], {_MAX_BOXES} at most, got {[count, depth]}")
    if scores.shape != (count,):
        op.fail(f"scores (input 1) must be {[count]}, got {list(scores.shape or ())}")
    most = _max_output_size(op, _SOFT_OPERATIONS if sigma else _OPERATIONS)
    overlap = _number(op, 3, "iou_threshold")
    threshold = _row(max(_number(op, 4, "score_threshold"), _OUT))

    scores = op.reshape(scores, (1, count))
    is_candidate = op.emit(OperationCode.GREATER, [scores, threshold], _BOOLEAN)
    out = constant(op.filled(scores, _OUT, np.float32))
    scores = op.emit(OperationCode.SELECT, [is_candidate, scores, out], _REAL)
    indices, places, scores = _taken(op, most, _boxes(op, corners), scores, overlap, sigma)

    is_over = op.emit(OperationCode.GREATER, [places, threshold], _BOOLEAN)
    number = op.emit(OperationCode.MINIMUM, [_counted(op, is_over), _counted(op, is_candidate)], _REAL)
    op.spend(most)
    numbers = constant(np.arange(most, dtype=np.float32).reshape(1, most))
    is_valid = op.emit(OperationCode.LESS, [numbers, number], _BOOLEAN)
    indices, scores = (op.reshape(_or_zero(op, is_valid, value), (most,)) for value in (indices, scores))
    return indices, scores, op.reshape(op.emit(OperationCode.CAST, [number], _INTEGER), (1,))


def _max_output_size(op: Operator, operations: int) -> int:
    """Return how many boxes are to be selected, by so many operations each."""
    most = op.integer(2, "max_output_size")
    if most < 1:
        op.fail(f"max_output_size (input 2) must be > 0, got {most}")
    possible = op.unrolled_steps(operations, most)
    if most > possible:
        op.fail(f"max_output_size (input 2) must be {possible} at most, as the model then gets too long, got {most}")
    return most


def _taken(
    op: Operator, most: int, boxes: _Boxes, scores: Value, overlap: float, sigma: float
) -> tuple[Value, Value, Value]:
    """Take the best box so many times; return [1, most] each of indices, what they were ordered by, and scores."""
    out = constant(op.filled(scores, _OUT, np.float32))
    limits = scores
    indices, places, found = [], [], []
    for _ in range(most):
        # Of a lower score and what it was before: one below 0 rises by an overlap, but its box does not move up.
        order = op.emit(OperationCode.MINIMUM, [limits, scores], _REAL) if sigma else limits
        index = op.emit(OperationCode.ARGMAX, [order, int32(1)], _INTEGER)
        indices.append(index)
        places.append(_column(op, order, index))
        overlaps = _overlaps(op, boxes, index)
        is_out = op.emit(OperationCode.GREATER_EQUAL, [overlaps, _row(overlap)], _BOOLEAN)
        limits = op.emit(OperationCode.SELECT, [is_out, out, limits], _REAL)
        if sigma:
            found.append(_column(op, scores, index))
            scores = _lowered(op, scores, overlaps, sigma)
    packed = op.emit(OperationCode.PACK, [int32(0), *indices], _INTEGER)
    order = _joined(op, places)
    return op.reshape(packed, (1, most)), order, _joined(op, found) if sigma else order


def _boxes(op: Operator, corners: Value) -> _Boxes:
    """Return what is needed of boxes [count, 4] of any two opposite corners."""
    rows = op.emit(OperationCode.TRANSPOSE, [corners, int32_vector((1, 0))], _REAL)
    pair = [_rows(op, rows, at, 2) for at in (0, 2)]
    starts, ends = (op.emit(code, pair, _REAL) for code in (OperationCode.MINIMUM, OperationCode.MAXIMUM))
    areas = _area(op, op.emit(OperationCode.SUB, [ends, starts, int32(FuseCode.NONE)], _REAL))
    return _Boxes(starts, ends, op.emit(OperationCode.MAXIMUM, [areas, _row(_LEAST_AREA)], _REAL))


def _overlaps(op: Operator, boxes: _Boxes, index: Value) -> Value:
    """Return by how much one box and each overlap, [1, count]: their intersection by their union."""
    start, end, area = (_column(op, value, index) for value in (boxes.starts, boxes.ends, boxes.areas))
    starts = op.emit(OperationCode.MAXIMUM, [boxes.starts, start], _REAL)
    ends = op.emit(OperationCode.MINIMUM, [boxes.ends, end], _REAL)
    shared = _area(op, op.emit(OperationCode.SUB, [ends, starts, int32(FuseCode.RELU)], _REAL))
    both = op.emit(OperationCode.ADD, [boxes.areas, area, int32(FuseCode.NONE)], _REAL)
    union = op.emit(OperationCode.SUB, [both, shared, int32(FuseCode.NONE)], _REAL)
    return op.emit(OperationCode.DIV, [shared, union, int32(FuseCode.NONE)], _REAL)


def _lowered(op: Operator, scores: Value, overlaps: Value, sigma: float) -> Value:
    """Return scores * exp(-overlaps^2 / (2 * sigma))."""
    scale = _row(max(-0.5 / sigma, _OUT))
    power = _multiply(op, _multiply(op, overlaps, scale), overlaps)
    return _multiply(op, scores, op.emit(OperationCode.EXP, [power], _REAL))


def _area(op: Operator, sides: Value) -> Value:
    """Return the products of the rows of [2, count]."""
    return _multiply(op, *(_rows(op, sides, at, 1) for at in (0, 1)))


def _rows(op: Operator, value: Value, begin: int, size: int) -> Value:
    bounds = (begin, 0), (size, (value.shape or (0, 0))[1])
    return op.emit(OperationCode.SLICE, [value, *map(int32_vector, bounds)], _REAL)


def _counted(op: Operator, is_counted: Value) -> Value:
    """Return the number of true elements of a row, [1, 1]."""
    ones = constant(op.filled(is_counted, 1, np.float32))
    inputs = [_or_zero(op, is_counted, ones), int32_vector([1]), scalar(OperandCode.BOOL, True)]
    return op.emit(OperationCode.REDUCE_SUM, inputs, _REAL)


def _or_zero(op: Operator, is_taken: Value, value: Value) -> Value:
    integer = value.type == OperandCode.TENSOR_INT32
    zeros = constant(op.filled(value, 0, np.int32 if integer else np.float32))
    return op.emit(OperationCode.SELECT, [is_taken, value, zeros], value)


def _column(op: Operator, rows: Value, index: Value) -> Value:
    return op.emit(OperationCode.GATHER, [rows, int32(1), index], _REAL)


def _joined(op: Operator, columns: Sequence[Value]) -> Value:
    return op.emit(OperationCode.CONCATENATION, [*columns, int32(1)], _REAL)


def _multiply(op: Operator, left: Value, right: Value) -> Value:
    return op.emit(OperationCode.MUL, [left, right, int32(FuseCode.NONE)], _REAL)


def _row(number: float) -> Value:
    return constant(np.full((1, 1), number, np.float32))


def _real_input(op: Operator, position: int, name: str, rank: int) -> Value:
    value = op.input(position, name, rank=rank)
    if value.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"{name} (input {position}) must be FLOAT32, got {OperandCode(value.type).name}")
    return value


def _number(op: Operator, position: int, name: str) -> float:
    """Return a constant real input of one element."""
    data = op.array(position, name)
    if data.dtype.kind != "f" or data.size != 1:
        op.fail(f"{name} (input {position}) must be one real number, got {data.dtype} {list(data.shape)}")
    return float(data.reshape(-1)[0])
