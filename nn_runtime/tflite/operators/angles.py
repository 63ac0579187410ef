# SPDX-License-Identifier: Apache-2.0
"""Angles: NNAPI has no inverse of a trigonometric function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_REAL, _BOOLEANS = Value(OperandCode.TENSOR_FLOAT32), Value(OperandCode.TENSOR_BOOL8)
_POLYNOMIAL = (
    *(0.0028662257, -0.0161657367, 0.0429096138, -0.0752896400, 0.1065626393, -0.1420889944, 0.1999355085),
    *(-0.3333314528, 1.0),
)
"""Of arctan(t) / t by t^2 for t up to 1, from the highest power down; off by at most 2e-8.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 4.4.49.
"""


@converts(BuiltinOperator.ATAN2, inputs=2)
def _atan2(op: Operator) -> None:
    """(y, x): the angle of the smaller size to the larger, turned to where the point is; -0 is taken for 0."""
    y, x = op.input(0, "y"), op.input(1, "x")
    for position, value in enumerate((y, x)):
        if value.type != OperandCode.TENSOR_FLOAT32 or value.shape != y.shape:
            given = f"{OperandCode(value.type).name} {list(value.shape or ())}"
            op.fail(f"y and x must be FLOAT32 of one shape, got {given} (input {position})")
    height, width = _size(op, y), _size(op, x)
    least = _number(float(np.finfo(np.float32).smallest_normal))  # so that 0 / 0 is 0
    larger = op.emit(OperationCode.MAXIMUM, [op.emit(OperationCode.MAXIMUM, [height, width], _REAL), least], _REAL)
    ratio = _of_two(op, OperationCode.DIV, op.emit(OperationCode.MINIMUM, [height, width], _REAL), larger)
    angle = _arctangent(op, ratio)
    is_steep = op.emit(OperationCode.GREATER, [height, width], _BOOLEANS)
    angle = _chosen(op, is_steep, _of_two(op, OperationCode.SUB, _number(math.pi / 2), angle), angle)
    angle = _chosen(op, _is_negative(op, x), _of_two(op, OperationCode.SUB, _number(math.pi), angle), angle)
    op.result(_chosen(op, _is_negative(op, y), op.emit(OperationCode.NEG, [angle], _REAL), angle))


def _size(op: Operator, value: Value) -> Value:
    """Return absolute values, of an infinity the greatest number, so that two of them have a ratio: they are alike."""
    greatest = _number(float(np.finfo(np.float32).max))
    return op.emit(OperationCode.MINIMUM, [op.emit(OperationCode.ABS, [value], _REAL), greatest], _REAL)


def _arctangent(op: Operator, ratio: Value) -> Value:
    square = _of_two(op, OperationCode.MUL, ratio, ratio)
    total = _number(_POLYNOMIAL[0])
    for coefficient in _POLYNOMIAL[1:]:
        total = _of_two(op, OperationCode.ADD, _of_two(op, OperationCode.MUL, square, total), _number(coefficient))
    return _of_two(op, OperationCode.MUL, ratio, total)


def _is_negative(op: Operator, value: Value) -> Value:
    return op.emit(OperationCode.LESS, [value, _number(0.0)], _BOOLEANS)


def _chosen(op: Operator, condition: Value, given: Value, other: Value) -> Value:
    return op.emit(OperationCode.SELECT, [condition, given, other], _REAL)


def _number(number: float) -> Value:
    return constant(np.array([number], np.float32))


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], _REAL)
