# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's custom operators that look closer at a part of a face: where it is, its features, and back.

Second versions, as face_landmark_with_attention.tflite has them. A matrix [1, 4, 4] takes (x, y, 0, 1) of the part to a
place in the whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.custom_options import integers, numbers
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_SIZES = ("output_width", "output_height")
_SCALES = ("scale_x", "scale_y")
_ENDS = ("left_rotation_idx", "right_rotation_idx")
_TURN = "target_rotation_radians"
_SUBSET = "subset_idxs"
_MAX_PLACES = 1 << 24
"""Of a picture: their numbers are exact in float32."""
_REAL = Value(OperandCode.TENSOR_FLOAT32)


@converts("Landmarks2TransformMatrix", inputs=1, version=2)
def _landmarks_to_matrix(op: Operator) -> None:
    """(landmarks [1, count, 3]) -> [1, 4, 4].

    The part is the rectangle around some landmarks, turned so that two of them lie as the options want, and scaled.
    """
    landmarks = _real_input(op, 0, "landmarks", 3)
    batches, count, depth = landmarks.shape or (0, 0, 0)
    if (batches, depth) != (1, 3):
        op.fail(f"landmarks (input 0) must be [1, count, 3], got {[batches, count, depth]}")
    options = _options(op, (*_SIZES, *_SCALES, *_ENDS, _TURN))
    left, right = (_index(op, name, int(options[name]), count) for name in _ENDS)
    subset = [_index(op, _SUBSET, index, count) for index in integers(op, _SUBSET)]
    if not subset:
        op.fail(f"option {_SUBSET} must name landmarks, got none")
    sizes = np.array([_positive(op, name, options[name]) for name in _SIZES], np.float32)
    scales = np.array([_positive(op, name, options[name]) for name in _SCALES], np.float32)

    start, end = (_places(op, landmarks, [index]) for index in (left, right))
    back = _turned_back(op, op.reshape(_subtract(op, end, start), (1, 2)), options[_TURN])
    turned = _product(op, _places(op, landmarks, subset), back)
    greatest, least = (_over(op, code, turned, [1]) for code in (OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN))
    half = constant(np.full((1, 1, 1), 0.5, np.float32))
    centre = _product(op, _multiply(op, _add(op, greatest, least), half), back, transposed=True)
    steps = _multiply(op, _subtract(op, greatest, least), constant((scales / sizes).reshape(1, 1, 2)))
    linear = _multiply(op, back, steps)
    corner = _over(op, OperationCode.REDUCE_SUM, _multiply(op, linear, constant(-sizes.reshape(1, 1, 2) / 2)), [2])
    moved = _add(op, op.reshape(centre, (1, 2, 1)), corner)
    upper = _joined(op, [linear, constant(np.zeros((1, 2, 1), np.float32)), moved], 2)
    op.result(_joined(op, [upper, constant(np.eye(4, dtype=np.float32)[np.newaxis, 2:])], 1))


@converts("TransformTensorBilinear", inputs=2, version=2)
def _sample(op: Operator) -> None:
    """(input [1, height, width, depth], matrix [1, 4, 4]) -> [1, output_height, output_width, depth].

    Pixels are squares around their centres; places outside the centres of the outermost ones are 0.
    """
    source = _real_input(op, 0, "input", 4)
    batches, height, width, depth = source.shape or (0, 0, 0, 0)
    if batches != 1 or height * width > _MAX_PLACES:
        op.fail(f"input (input 0) must be one picture of {_MAX_PLACES} places at most, got {list(source.shape or ())}")
    options = _options(op, _SIZES)
    columns, rows = (int(_positive(op, name, options[name])) for name in _SIZES)
    count = rows * columns
    op.spend(3 * count)
    y, x = np.indices((rows, columns), np.float32).reshape(2, count) + np.float32(0.5)
    centres = np.stack([x, y, np.zeros_like(x), np.ones_like(x)])[np.newaxis]
    matrix = _part(op, _matrix(op, 1), (0, 0, 0), (1, 2, 4))
    places = _subtract(op, _product(op, matrix, constant(centres)), constant(np.full((1, 1, 1), 0.5, np.float32)))

    ones, zeros = (constant(np.full((1, 1, count), number, np.float32)) for number in (1, 0))
    last = constant(np.array([width - 1, height - 1], np.float32).reshape(1, 2, 1))
    inside = op.emit(
        OperationCode.LOGICAL_AND,
        [
            _compared(op, OperationCode.GREATER_EQUAL, places, zeros),
            _compared(op, OperationCode.LESS_EQUAL, places, last),
        ],
        Value(OperandCode.TENSOR_BOOL8),
    )
    inside = _over(op, OperationCode.REDUCE_ALL, inside, [1])
    counts = op.emit(OperationCode.SELECT, [inside, ones, zeros], _REAL)
    floors = op.emit(OperationCode.FLOOR, [places], _REAL)
    fractions = _subtract(op, places, floors)
    lower = _least(op, op.emit(OperationCode.MAXIMUM, [floors, zeros], _REAL), last)
    ends = _joined(op, [lower, _least(op, _add(op, lower, ones), last)], 0)
    shares = _joined(op, [_subtract(op, ones, fractions), fractions], 0)
    along_x, along_y = (_along(op, ends, axis, count) for axis in (0, 1))
    numbers_of_places = _add(op, _multiply(op, along_y, constant(np.full((1, 1, 1), width, np.float32))), along_x)
    weights = _multiply(op, _multiply(op, _along(op, shares, 1, count), _along(op, shares, 0, count)), counts)
    at = op.emit(OperationCode.CAST, [numbers_of_places], Value(OperandCode.TENSOR_INT32))
    corners = op.emit(OperationCode.GATHER, [op.reshape(source, (height * width, depth)), int32(0), at], _REAL)
    weighted = _multiply(op, corners, op.reshape(weights, (2, 2, count, 1)))
    op.result(op.reshape(_over(op, OperationCode.REDUCE_SUM, weighted, [0, 1]), (1, rows, columns, depth)))


@converts("TransformLandmarks", inputs=2, version=2)
def _transform_landmarks(op: Operator) -> None:
    """(landmarks [1, count, 2 or 3], matrix [1, 4, 4]) -> landmarks with x and y transformed, z as it was."""
    landmarks = _real_input(op, 0, "landmarks", 3)
    batches, count, depth = landmarks.shape or (0, 0, 0)
    if batches != 1 or depth not in (2, 3):
        op.fail(f"landmarks (input 0) must be [1, count, 2 or 3], got {[batches, count, depth]}")
    matrix = _matrix(op, 1)
    linear, moved = _part(op, matrix, (0, 0, 0), (1, 2, 2)), _part(op, matrix, (0, 0, 3), (1, 2, 1))
    places = landmarks if depth == 2 else _part(op, landmarks, (0, 0, 0), (1, count, 2))
    result = _add(op, _product(op, places, linear, transposed=True), op.reshape(moved, (1, 1, 2)))
    if depth == 3:
        result = _joined(op, [result, _part(op, landmarks, (0, 0, 2), (1, count, 1))], 2)
    op.result(result)


def _real_input(op: Operator, position: int, name: str, rank: int) -> Value:
    value = op.input(position, name, rank=rank)
    if value.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"{name} (input {position}) must be FLOAT32, got {OperandCode(value.type).name}")
    return value


def _matrix(op: Operator, position: int) -> Value:
    matrix = _real_input(op, position, "matrix", 3)
    if matrix.shape != (1, 4, 4):
        op.fail(f"matrix (input {position}) must be [1, 4, 4], got {list(matrix.shape or ())}")
    return matrix


def _options(op: Operator, names: Sequence[str]) -> dict[str, float]:
    found = numbers(op, names)
    missing = [name for name in names if name not in found]
    if missing:
        op.fail(f"option {missing[0]} is missing")
    return found


def _positive(op: Operator, name: str, number: float) -> float:
    if not 0 < number < math.inf:
        op.fail(f"option {name} must be > 0, got {number}")
    return number


def _index(op: Operator, name: str, index: int, count: int) -> int:
    if not 0 <= index < count:
        op.fail(f"option {name} must be of the {count} landmarks, got {index}")
    return index


def _turned_back(op: Operator, direction: Value, wanted: float) -> Value:
    """Return the rotation [1, 2, 2] that takes the angle `wanted` to that of a direction [1, 2]; 0 has the angle 0."""
    squares = _over(op, OperationCode.REDUCE_SUM, _multiply(op, direction, direction), [1])
    zero, one = (constant(np.full((1, 1), number, np.float32)) for number in (0, 1))
    nowhere = _compared(op, OperationCode.EQUAL, squares, zero)
    right = _multiply(
        op, op.emit(OperationCode.SELECT, [nowhere, one, zero], _REAL), constant(np.array([[1, 0]], np.float32))
    )
    length = op.emit(OperationCode.SQRT, [op.emit(OperationCode.SELECT, [nowhere, one, squares], _REAL)], _REAL)
    unit = op.emit(OperationCode.DIV, [_add(op, direction, right), length, int32(FuseCode.NONE)], _REAL)
    cosine, sine = math.cos(wanted), math.sin(wanted)
    weights = np.array([[cosine, sine], [sine, -cosine], [-sine, cosine], [cosine, sine]], np.float32)
    inputs = [unit, constant(weights), constant(np.zeros(4, np.float32)), int32(FuseCode.NONE)]
    return op.reshape(op.emit(OperationCode.FULLY_CONNECTED, inputs, _REAL), (1, 2, 2))


def _places(op: Operator, landmarks: Value, indices: Sequence[int]) -> Value:
    """Return x and y of some landmarks, [1, indices, 2]."""
    op.spend(len(indices))
    found = op.emit(OperationCode.GATHER, [landmarks, int32(1), int32_vector(indices)], _REAL)
    return _part(op, found, (0, 0, 0), (1, len(indices), 2))


def _along(op: Operator, ends: Value, axis: int, count: int) -> Value:
    """Return what [2, 2, count], lower and upper of x and y, has of an axis: [1, 2, count] of x, [2, 1, count] of y."""
    return op.reshape(_part(op, ends, (0, axis, 0), (2, 1, count)), (2, 1, count) if axis else (1, 2, count))


def _part(op: Operator, value: Value, begin: Sequence[int], size: Sequence[int]) -> Value:
    return op.emit(OperationCode.SLICE, [value, int32_vector(begin), int32_vector(size)], _REAL)


def _joined(op: Operator, values: Sequence[Value], axis: int) -> Value:
    return op.emit(OperationCode.CONCATENATION, [*values, int32(axis)], _REAL)


def _over(op: Operator, code: OperationCode, value: Value, axes: Sequence[int]) -> Value:
    """Return a reduction; its axes stay, of size 1."""
    return op.emit(code, [value, int32_vector(axes), scalar(OperandCode.BOOL, True)], value)


def _product(op: Operator, left: Value, right: Value, *, transposed: bool = False) -> Value:
    flags = (scalar(OperandCode.BOOL, False), scalar(OperandCode.BOOL, transposed))
    return op.emit(OperationCode.BATCH_MATMUL, [left, right, *flags], _REAL)


def _compared(op: Operator, code: OperationCode, left: Value, right: Value) -> Value:
    return op.emit(code, [left, right], Value(OperandCode.TENSOR_BOOL8))


def _add(op: Operator, left: Value, right: Value) -> Value:
    return op.emit(OperationCode.ADD, [left, right, int32(FuseCode.NONE)], _REAL)


def _subtract(op: Operator, left: Value, right: Value) -> Value:
    return op.emit(OperationCode.SUB, [left, right, int32(FuseCode.NONE)], _REAL)


def _multiply(op: Operator, left: Value, right: Value) -> Value:
    return op.emit(OperationCode.MUL, [left, right, int32(FuseCode.NONE)], _REAL)


def _least(op: Operator, left: Value, right: Value) -> Value:
    return op.emit(OperationCode.MINIMUM, [left, right], _REAL)
