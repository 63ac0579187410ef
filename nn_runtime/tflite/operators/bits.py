# SPDX-License-Identifier: Apache-2.0
"""Operations on the bits of integers, of which NNAPI has none: quotients and products by powers of 2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.stablehlo import same_shapes
from nn_runtime.tflite.operators.whole_numbers import as_output, bits_of, whole_numbers
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_INTEGERS = Value(OperandCode.TENSOR_INT32)
_BYTES = QUANT8_TYPES | {OperandCode.TENSOR_BOOL8}
_BITS = 32
_MAX_BITS = 1 << 24
_POWERS = (1 << np.arange(_BITS, dtype=np.int64)).astype(np.int32)
"""Of 2; the last one is negative, as the sign bit is."""
_DIVISORS = np.minimum(1 << np.arange(_BITS, dtype=np.int64), 1 << (_BITS - 2)).astype(np.int32)
_LAST_DIVISORS = np.where(np.arange(_BITS) == _BITS - 1, 2, 1).astype(np.int32)
"""Divisors of the quotients by the ones above, as 32 bits have no 2^31."""


@converts(BuiltinOperator.STABLEHLO_AND, inputs=2)
def _and(op: Operator) -> None:
    """(lhs, rhs): of booleans, or of the bits of integers."""
    first, second = same_shapes(op)
    if first.type == OperandCode.TENSOR_BOOL8:
        op.result(op.emit(OperationCode.LOGICAL_AND, [first, second]))
    else:
        op.result(as_output(op, _common_bits(op, *_integers(op, first, second))))


@converts(BuiltinOperator.BITWISE_XOR, inputs=2)
def _xor(op: Operator) -> None:
    """(lhs, rhs): their sum without what is carried, twice the bits that both have."""
    first, second = _integers(op, op.input(0, "lhs"), op.input(1, "rhs"))
    both = _common_bits(op, first, second)
    total = _of_two(op, OperationCode.ADD, first, second)
    carried = _of_two(op, OperationCode.MUL, both, int32_vector([2]))
    op.result(as_output(op, _of_two(op, OperationCode.SUB, total, carried)))


@converts(BuiltinOperator.RIGHT_SHIFT, inputs=2)
def _right_shift(op: Operator) -> None:
    """(lhs, rhs): quotients rounded down; a number of places beyond the bits is the nearest within."""
    numbers, places = _integers(op, op.input(0, "lhs"), op.input(1, "rhs"))
    places = _between(op, places, 0, bits_of(op.output_tensor().type) - 1)
    for table in (_DIVISORS, _LAST_DIVISORS):
        numbers = _of_two(op, OperationCode.DIV, numbers, _entries(op, table, places))
    op.result(as_output(op, numbers))


@converts(BuiltinOperator.STABLEHLO_SHIFT_LEFT, inputs=2)
def _shift_left(op: Operator) -> None:
    """(lhs, rhs): products, 0 where all bits are moved out."""
    numbers, places = _integers(op, op.input(0, "lhs"), op.input(1, "rhs"))
    factors = _entries(op, np.append(_POWERS, np.int32(0)), _between(op, places, 0, _BITS))
    op.result(as_output(op, _of_two(op, OperationCode.MUL, numbers, factors)))


@converts(BuiltinOperator.BITCAST, inputs=1)
def _bitcast(op: Operator) -> None:
    """(input): the same type, or bytes that have a sign or none."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.type == wanted.type and source.type != OperandCode.TENSOR_QUANT16_SYMM:
        op.result_of_same_quantization(source)
    elif source.type in _BYTES and wanted.type in QUANT8_TYPES:
        op.result(as_output(op, whole_numbers(op, source)))
    else:
        given = f"{OperandCode(source.type).name} to {op.output_tensor().type.name}"
        op.fail(f"from a type to itself, or from bytes to bytes, is supported, got {given}")


def _integers(op: Operator, *values: Value) -> list[Value]:
    """Return integers in 32 bits."""
    for value in values:
        if value.type not in QUANT8_TYPES and value.type != _INTEGERS.type:
            op.fail(f"both inputs must be of integers, got {OperandCode(value.type).name}")
    return [whole_numbers(op, value) for value in values]


def _common_bits(op: Operator, first: Value, second: Value) -> Value:
    """Return the bits that both of two integers have: as many columns of 0 and 1, multiplied and joined again."""
    shape, bits = op.common_shape(first, second) or (1,), bits_of(op.output_tensor().type)
    if math.prod(shape) * bits > _MAX_BITS:
        op.fail(f"at most {_MAX_BITS // bits} elements of {bits} bits are supported, got {list(shape)}")
    columns = [_bits(op, op.broadcast(value, shape), bits) for value in (first, second)]
    flag = scalar(OperandCode.BOOL, False)
    both = op.reshape(_of_two(op, OperationCode.MUL, *columns), (1, -1, bits))
    powers = constant(_POWERS[:bits].reshape(1, -1, 1))
    return op.reshape(op.emit(OperationCode.BATCH_MATMUL, [both, powers, flag, flag], _INTEGERS), shape)


def _bits(op: Operator, numbers: Value, count: int) -> Value:
    """Return the lowest bits of integers as columns, from the first on."""
    quotients = op.reshape(numbers, (math.prod(numbers.shape or ()), 1))
    for table in (_DIVISORS, _LAST_DIVISORS)[: 2 if count == _BITS else 1]:
        quotients = _of_two(op, OperationCode.DIV, quotients, constant(table[:count]))
    halves = _of_two(op, OperationCode.DIV, quotients, int32_vector([2]))
    return _of_two(op, OperationCode.SUB, quotients, _of_two(op, OperationCode.MUL, halves, int32_vector([2])))


def _entries(op: Operator, table: Array, places: Value) -> Value:
    """Return the entries of a table at places within it."""
    if places.data is not None:
        return constant(table[places.data])
    return op.emit(OperationCode.GATHER, [constant(table), int32(0), places], _INTEGERS)


def _between(op: Operator, value: Value, least: int, greatest: int) -> Value:
    """Return integers between bounds."""
    if value.data is not None:
        return constant(np.clip(value.data, least, greatest).astype(np.int32))
    value = op.emit(OperationCode.MAXIMUM, [value, int32_vector([least])], _INTEGERS)
    return op.emit(OperationCode.MINIMUM, [value, int32_vector([greatest])], _INTEGERS)


def _of_two(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], _INTEGERS)
