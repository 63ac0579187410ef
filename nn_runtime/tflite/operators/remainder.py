# SPDX-License-Identifier: Apache-2.0
"""FLOOR_MOD: what is left of a division that is rounded down, for which NNAPI has no operation."""

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
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_BOOLEANS = Value(OperandCode.TENSOR_BOOL8)
_UPPER_BITS = 0xFFFFF000
"""Of a float32: sign, exponent and the first half of its 24 bits."""
_SPLITTING = (1 << 12) + 1


@converts(BuiltinOperator.FLOOR_MOD, inputs=2, version=2)
def _floor_mod(op: Operator) -> None:
    """(input0, input1): a - floor(a / b) * b."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    if first.type == OperandCode.TENSOR_FLOAT32 == second.type:
        op.result(_real_remainder(op, first, second))
        return
    if not are_whole(first, second):
        given = ", ".join(OperandCode(value.type).name for value in (first, second))
        op.fail(f"both inputs must be FLOAT32, or INT8, INT16, INT32 or INT64, got {given}")
    first, second = whole_numbers(op, first), whole_numbers(op, second)
    product = _of_two(op, OperationCode.MUL, _of_two(op, OperationCode.DIV, first, second), second)
    op.result(as_output(op, _of_two(op, OperationCode.SUB, first, product)))


@dataclass(frozen=True)
class _Divisor:
    """A divisor's size, two parts of 12 bits each that it is the sum of, and its sign, None where it is never < 0."""

    size: Value
    halves: tuple[Value, Value]
    sign: Value | None


def _known(op: Operator, divisor: Array) -> _Divisor:
    if not np.isfinite(divisor).all():
        op.fail("input1 (input 1) must be finite")
    size = np.abs(divisor)
    upper = (size.view(np.uint32) & np.uint32(_UPPER_BITS)).view(np.float32)
    is_positive = not np.signbit(divisor).any()
    sign = None if is_positive else constant(np.copysign(np.float32(1), divisor))
    return _Divisor(constant(size), (constant(upper), constant(size - upper)), sign)


def _computed(op: Operator, divisor: Value) -> _Divisor:
    """Return a divisor below 2^115: size * 4097 - (size * 4097 - size) has the first 12 bits of the size, rounded."""
    size = op.emit(OperationCode.ABS, [divisor], divisor)
    scaled = _of_two(op, OperationCode.MUL, size, constant(np.full(1, _SPLITTING, np.float32)))
    upper = _of_two(op, OperationCode.SUB, scaled, _of_two(op, OperationCode.SUB, scaled, size))
    is_negative = op.emit(OperationCode.LESS, [divisor, constant(np.zeros(1, np.float32))], _BOOLEANS)
    plus, minus = (constant(op.filled(is_negative, number, np.float32)) for number in (1, -1))
    sign = op.emit(OperationCode.SELECT, [is_negative, minus, plus], divisor)
    return _Divisor(size, (upper, _of_two(op, OperationCode.SUB, size, upper)), sign)


def _real_remainder(op: Operator, source: Value, divisor: Value) -> Value:
    """Return remainders, exact where the quotient has at most 12 bits: its products with halves of the divisor are.

    The quotient may be one off, as it is rounded before it is rounded down; one of -1 is never too small.
    """
    by = _computed(op, divisor) if divisor.data is None else _known(op, divisor.data)
    given = source if by.sign is None else _of_two(op, OperationCode.MUL, source, by.sign)
    quotient = op.emit(OperationCode.FLOOR, [_of_two(op, OperationCode.DIV, given, by.size)], source)
    rest = given
    for half in by.halves:
        rest = _of_two(op, OperationCode.SUB, rest, _of_two(op, OperationCode.MUL, quotient, half))
    zero, minus_one = (constant(np.full(1, number, np.float32)) for number in (0, -1))
    is_beyond = op.emit(
        OperationCode.LOGICAL_AND,
        [
            op.emit(OperationCode.GREATER_EQUAL, [rest, by.size], _BOOLEANS),
            op.emit(OperationCode.NOT_EQUAL, [quotient, minus_one], _BOOLEANS),
        ],
        _BOOLEANS,
    )
    is_below = op.emit(OperationCode.LESS, [rest, zero], _BOOLEANS)
    less, more = (_of_two(op, code, rest, by.size) for code in (OperationCode.SUB, OperationCode.ADD))
    rest = op.emit(OperationCode.SELECT, [is_beyond, less, rest], source)
    rest = op.emit(OperationCode.SELECT, [is_below, more, rest], source)
    return rest if by.sign is None else _of_two(op, OperationCode.MUL, rest, by.sign)


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], first)
