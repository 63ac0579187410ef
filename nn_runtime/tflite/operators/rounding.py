# SPDX-License-Identifier: Apache-2.0
"""Signs, and numbers made whole, put on a grid or between bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_ALL_WHOLE = 2.0**23
"""From here on every float32 is a whole number, and up to twice that each whole number is one."""
_MAX_BITS = 16


def _number(like: Value, number: float) -> Value:
    return constant(np.array([number], dtype_of(like.type)), like.type)


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value | float) -> Value:
    """Emit ADD, SUB or MUL of a value and another, or a number."""
    other = second if isinstance(second, Value) else _number(first, second)
    return op.emit(code, [first, other, int32(FuseCode.NONE)], first)


@converts(BuiltinOperator.SIGN, inputs=1, version=2)
def _sign(op: Operator) -> None:
    """(input): -1, 0 or 1, a NaN stays one; real numbers grow beyond 1 (the smallest in two steps) and are cut off."""
    source = op.input(0, "x")
    if source.type == OperandCode.TENSOR_INT32:
        low = op.emit(OperationCode.MAXIMUM, [source, _number(source, -1)])
        op.result(op.emit(OperationCode.MINIMUM, [low, _number(source, 1)]))
        return
    if source.type not in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16):
        op.fail(f"x (input 0) must be FLOAT32 or INT32, got {OperandCode(source.type).name}")
    op.result(_sign_of(op, source))


def _sign_of(op: Operator, source: Value) -> Value:
    """Return -1, 0 or 1 for real numbers; a 0 keeps its sign."""
    greatest = float(np.finfo(dtype_of(source.type)).max)
    grown = _of_two(op, OperationCode.MUL, source, greatest)
    return op.emit(OperationCode.MUL, [grown, _number(source, greatest), int32(FuseCode.RELU1)], source)


@converts(BuiltinOperator.ROUND, inputs=1)
def _round(op: Operator) -> None:
    """(input): the nearest whole number, halves to the even one."""
    source = op.input(0, "x")
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"x (input 0) must be FLOAT32, got {OperandCode(source.type).name}")
    op.result(nearest(op, source))


def nearest(op: Operator, source: Value) -> Value:
    """Return the whole numbers nearest to real ones, halves to the even one.

    A sum of 2^23 and less has no bits for fractions, and is rounded so; what the size is above 2^23 is whole already.
    The sign is a factor: a choice between two results would end the step that the others are.
    """
    size = op.emit(OperationCode.ABS, [source], source)
    small = op.emit(OperationCode.MINIMUM, [size, _number(source, _ALL_WHOLE)], source)
    rest = _of_two(op, OperationCode.SUB, size, small)
    whole = _of_two(op, OperationCode.SUB, _of_two(op, OperationCode.ADD, small, _ALL_WHOLE), _ALL_WHOLE)
    return _of_two(op, OperationCode.MUL, _of_two(op, OperationCode.ADD, whole, rest), _sign_of(op, source))


@converts(BuiltinOperator.FAKE_QUANT, inputs=1, version=2)
def _fake_quant(op: Operator) -> None:
    """(input): real numbers as they would be after quantisation to so many bits and back, halves away from zero."""
    source = op.input(0, "input")
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"input (input 0) must be FLOAT32, got {OperandCode(source.type).name}")
    low, high, scale = (float(number) for number in _grid(op))
    steps = op.emit(
        OperationCode.MINIMUM, [op.emit(OperationCode.MAXIMUM, [source, _number(source, low)]), _number(source, high)]
    )
    steps = _of_two(op, OperationCode.SUB, steps, low)
    steps = _of_two(op, OperationCode.MUL, steps, float(np.float32(1) / np.float32(scale)))
    whole = op.emit(OperationCode.FLOOR, [steps])
    fraction = _of_two(op, OperationCode.SUB, steps, whole)
    carry = op.emit(OperationCode.FLOOR, [_of_two(op, OperationCode.ADD, fraction, fraction)])
    rounded = _of_two(op, OperationCode.ADD, whole, carry)
    op.result(_of_two(op, OperationCode.ADD, _of_two(op, OperationCode.MUL, rounded, scale), low))


def _grid(op: Operator) -> tuple[np.float32, np.float32, np.float32]:
    """Return the least and the greatest number, and their distance: the range moved such that 0 is one of them."""
    least, greatest = (np.float32(op.real_option(name)) for name in ("min", "max"))
    bits = op.option("num_bits")
    if op.option("narrow_range"):
        op.fail("narrow_range is not supported")
    if not 2 <= bits <= _MAX_BITS:
        op.fail(f"num_bits must be 2 to {_MAX_BITS}, got {bits}")
    if not (math.isfinite(least) and math.isfinite(greatest) and least <= 0 <= greatest and least < greatest):
        op.fail(f"min and max must be a range around 0, got {least} and {greatest}")
    last = np.float32((1 << bits) - 1)
    with np.errstate(all="ignore"):
        scale = (greatest - least) / last
        zero_point = np.clip(np.floor(-least / scale + np.float32(0.5)), 0, last)
        low, high = -zero_point * scale, (last - zero_point) * scale
    if not (np.isfinite(np.float32(1) / scale) and np.isfinite(high - low)):
        op.fail(f"min and max are no range of float32, got {least} and {greatest}")
    return low, high, scale


@converts(BuiltinOperator.BUCKETIZE, inputs=1)
def _bucketize(op: Operator) -> None:
    """(input): how many boundaries each number is not below; a NaN is below none."""
    source, boundaries = op.input(0, "input"), np.array(op.real_options("boundaries"), np.float32)
    if source.type not in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32):
        op.fail(f"input (input 0) must be FLOAT32, INT32 or INT64, got {OperandCode(source.type).name}")
    if not boundaries.size or not (boundaries[:-1] <= boundaries[1:]).all() or np.isnan(boundaries).any():
        op.fail(f"boundaries must be numbers that do not fall, got {boundaries.tolist()[:8]}")
    shape, kind = source.shape or (1,), Value(OperandCode.TENSOR_FLOAT32)
    numbers = source if source.type == kind.type else op.emit(OperationCode.CAST, [source], kind)
    column = op.reshape(numbers, (math.prod(shape), 1))
    is_below = op.emit(OperationCode.LESS, [column, constant(boundaries)], Value(OperandCode.TENSOR_BOOL8))
    zeros, ones = (constant(op.filled(is_below, number, np.float32)) for number in (0, 1))
    counted = op.emit(OperationCode.SELECT, [is_below, zeros, ones], kind)
    counts = op.emit(OperationCode.REDUCE_SUM, [counted, int32_vector([1]), scalar(OperandCode.BOOL, False)], kind)
    op.result(op.reshape(op.emit(OperationCode.CAST, [counts]), shape))
