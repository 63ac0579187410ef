# SPDX-License-Identifier: Apache-2.0
"""FLOOR_DIV and FLOOR_MOD: divisions that are rounded down, of integers and of real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.whole_numbers import are_whole, as_output, whole_numbers
from nn_runtime.tflite.values import Value, constant, int32
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_REAL, _BOOLEANS = Value(OperandCode.TENSOR_FLOAT32), Value(OperandCode.TENSOR_BOOL8)
_SPLITTING = (1 << 12) + 1
_DIGIT = float(1 << 12)
_MOST_EXACT = float(1 << 24)
"""Of a quotient, which has two digits of 12 bits."""
_LARGEST = 2.0**115
"""Of a divisor's size, so that no multiple overflows: smaller numbers are divided by larger ones as by it."""


@converts(BuiltinOperator.FLOOR_DIV, inputs=2, version=3)
def _floor_div(op: Operator) -> None:
    """(input0, input1): floor(a / b), of real numbers of the exact quotient, which LiteRT makes of doubles."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    first, second = op.matched(first, second), op.matched(second, first)
    if are_whole(first, second):
        quotient = _of_two(op, OperationCode.DIV, whole_numbers(op, first), whole_numbers(op, second))
        op.result(as_output(op, quotient))
        return
    rounded = op.emit(OperationCode.FLOOR, [_of_two(op, OperationCode.DIV, first, second)], first)
    if first.type != OperandCode.TENSOR_FLOAT32:
        op.result(rounded)
        return
    limits = (rounded, _MOST_EXACT), (first, _LARGEST)
    within = [_of_size_below(op, value, limit) for value, limit in limits]
    is_exact = op.emit(OperationCode.LOGICAL_AND, within, _BOOLEANS)
    op.result(_chosen(op, is_exact, _divided(op, first, second).quotient(op), rounded))


@converts(BuiltinOperator.FLOOR_MOD, inputs=2, version=2)
def _floor_mod(op: Operator) -> None:
    """(input0, input1): a - floor(a / b) * b; of real numbers that are both beyond 2^115, anything."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    if first.type == OperandCode.TENSOR_FLOAT32 == second.type:
        op.result(_divided(op, first, second).remainder(op))
        return
    if not are_whole(first, second):
        given = ", ".join(OperandCode(value.type).name for value in (first, second))
        op.fail(f"both inputs must be FLOAT32, or INT8, INT16, INT32 or INT64, got {given}")
    first, second = whole_numbers(op, first), whole_numbers(op, second)
    product = _of_two(op, OperationCode.MUL, _of_two(op, OperationCode.DIV, first, second), second)
    op.result(as_output(op, _of_two(op, OperationCode.SUB, first, product)))


@dataclass(frozen=True)
class _Division:
    """What is left of a number's size divided by a divisor's, and the digits of the quotient, the higher one first.

    `is_turned`: the signs differ, so that a rest rounds the quotient away from 0; `sign`: of the divisor, 1 or -1.
    """

    digits: tuple[Value, ...]
    rest: Value
    size: Value
    is_turned: Value
    sign: Value

    def quotient(self, op: Operator) -> Value:
        higher, lower = self.digits
        whole = _of_two(op, OperationCode.ADD, _of_two(op, OperationCode.MUL, higher, _number(_DIGIT)), lower)
        enlarged = _chosen(op, self._has_rest(op), _of_two(op, OperationCode.ADD, whole, _number(1)), whole)
        return _chosen(op, self.is_turned, op.emit(OperationCode.NEG, [enlarged], _REAL), whole)

    def remainder(self, op: Operator) -> Value:
        missing = _chosen(op, self._has_rest(op), _of_two(op, OperationCode.SUB, self.size, self.rest), self.rest)
        return _of_two(op, OperationCode.MUL, _chosen(op, self.is_turned, missing, self.rest), self.sign)

    def _has_rest(self, op: Operator) -> Value:
        return op.emit(OperationCode.GREATER, [self.rest, _number(0)], _BOOLEANS)


def _divided(op: Operator, source: Value, divisor: Value) -> _Division:
    """Divide sizes digit by digit, exactly where the quotient has two digits: neighbours beyond are a divisor apart.

    A digit's products with both halves of the divisor are exact; the first is size * 4097 - (size * 4097 - size), its
    12 bits rounded. A digit may be one off, as it is rounded before it is rounded down.
    """
    size = op.emit(OperationCode.ABS, [divisor], _REAL)
    least = op.emit(OperationCode.MINIMUM, [size, _number(_LARGEST)], _REAL)
    scaled = _of_two(op, OperationCode.MUL, least, _number(_SPLITTING))
    upper = _of_two(op, OperationCode.SUB, scaled, _of_two(op, OperationCode.SUB, scaled, least))
    halves = upper, _of_two(op, OperationCode.SUB, least, upper)
    rest, digits = op.emit(OperationCode.ABS, [source], _REAL), []
    for weight in (_DIGIT, 1.0):
        by, *parts = (_of_two(op, OperationCode.MUL, value, _number(weight)) for value in (least, *halves))
        digit = op.emit(OperationCode.FLOOR, [_of_two(op, OperationCode.DIV, rest, by)], _REAL)
        for part in parts:
            rest = _of_two(op, OperationCode.SUB, rest, _of_two(op, OperationCode.MUL, digit, part))
        is_too_small = op.emit(OperationCode.GREATER_EQUAL, [rest, by], _BOOLEANS)
        is_too_large = op.emit(OperationCode.LESS, [rest, _number(0)], _BOOLEANS)
        for is_off, code in ((is_too_small, OperationCode.SUB), (is_too_large, OperationCode.ADD)):
            rest = _chosen(op, is_off, _of_two(op, code, rest, by), rest)
            back = OperationCode.ADD if code == OperationCode.SUB else OperationCode.SUB
            digit = _chosen(op, is_off, _of_two(op, back, digit, _number(1)), digit)
        digits.append(digit)
    is_negative, is_divisor_negative = (
        op.emit(OperationCode.LESS, [value, _number(0)], _BOOLEANS) for value in (source, divisor)
    )
    is_turned = op.emit(OperationCode.NOT_EQUAL, [is_negative, is_divisor_negative], _BOOLEANS)
    minus, plus = (constant(op.filled(divisor, number, np.float32)) for number in (-1, 1))
    sign = _chosen(op, is_divisor_negative, minus, plus)
    return _Division(tuple(digits), rest, size, is_turned, sign)


def _of_size_below(op: Operator, value: Value, limit: float) -> Value:
    return op.emit(OperationCode.LESS, [op.emit(OperationCode.ABS, [value], _REAL), _number(limit)], _BOOLEANS)


def _chosen(op: Operator, condition: Value, given: Value, other: Value) -> Value:
    return op.emit(OperationCode.SELECT, [condition, given, other], _REAL)


def _number(number: float) -> Value:
    return constant(np.full(1, number, np.float32))


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], first)
