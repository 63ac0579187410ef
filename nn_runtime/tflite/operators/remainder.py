# SPDX-License-Identifier: Apache-2.0
"""FLOOR_MOD: what is left of a division that is rounded down, for which NNAPI has no operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_BOOLEANS = Value(OperandCode.TENSOR_BOOL8)
_UPPER_BITS = 0xFFFFF000
"""Of a float32: sign, exponent and the first half of its 24 bits."""


@converts(BuiltinOperator.FLOOR_MOD, inputs=2, version=2)
def _floor_mod(op: Operator) -> None:
    """(input0, input1) of integers: a - floor(a / b) * b; of real numbers where the divisor is a constant."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    if first.type == OperandCode.TENSOR_FLOAT32 == second.type and second.data is not None:
        op.result(_real_remainder(op, first, second.data))
        return
    if not first.type == OperandCode.TENSOR_INT32 == second.type:
        op.fail("only INT32, INT64, and FLOAT32 by a constant are supported")
    product = _of_two(op, OperationCode.MUL, _of_two(op, OperationCode.DIV, first, second), second)
    op.result(_of_two(op, OperationCode.SUB, first, product))


def _real_remainder(op: Operator, source: Value, divisor: Array) -> Value:
    """Return remainders, exact where the quotient has at most 12 bits: its products with halves of the divisor are.

    The quotient may be one off, as it is rounded before it is rounded down; one of -1 is never too small.
    """
    if not np.isfinite(divisor).all():
        op.fail("input1 (input 1) must be finite")
    size = constant(np.abs(divisor))
    upper = (np.abs(divisor).view(np.uint32) & np.uint32(_UPPER_BITS)).view(np.float32)
    halves = constant(upper), constant(np.abs(divisor) - upper)
    signs = constant(np.copysign(np.float32(1), divisor))
    is_positive = not np.signbit(divisor).any()
    given = source if is_positive else _of_two(op, OperationCode.MUL, source, signs)
    quotient = op.emit(OperationCode.FLOOR, [_of_two(op, OperationCode.DIV, given, size)], source)
    rest = given
    for half in halves:
        rest = _of_two(op, OperationCode.SUB, rest, _of_two(op, OperationCode.MUL, quotient, half))
    zero, minus_one = (constant(np.full(1, number, np.float32)) for number in (0, -1))
    is_beyond = op.emit(
        OperationCode.LOGICAL_AND,
        [
            op.emit(OperationCode.GREATER_EQUAL, [rest, size], _BOOLEANS),
            op.emit(OperationCode.NOT_EQUAL, [quotient, minus_one], _BOOLEANS),
        ],
        _BOOLEANS,
    )
    is_below = op.emit(OperationCode.LESS, [rest, zero], _BOOLEANS)
    less, more = (_of_two(op, code, rest, size) for code in (OperationCode.SUB, OperationCode.ADD))
    rest = op.emit(OperationCode.SELECT, [is_beyond, less, rest], source)
    rest = op.emit(OperationCode.SELECT, [is_below, more, rest], source)
    return rest if is_positive else _of_two(op, OperationCode.MUL, rest, signs)


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], first)
