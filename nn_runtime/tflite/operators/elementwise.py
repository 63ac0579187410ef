# SPDX-License-Identifier: Apache-2.0
"""Functions of one element and of two broadcast ones: arithmetic, comparisons, logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.integers import activated, power, truncated_quotient
from nn_runtime.tflite.operators.whole_numbers import as_output
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import constant, int32

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_SHORT = frozenset({TensorType.INT16, TensorType.UINT16})
_ARITHMETIC = _SHORT | {
    *(TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT32, TensorType.INT64),
    *(TensorType.UINT8, TensorType.INT8),
}
_NO_ACTIVATION = int32(FuseCode.NONE)
_MOST_FACTORS = 16
"""Of a real number's power that is a product."""


def _pair(op: Operator) -> tuple[Value, Value]:
    """Return both inputs; a constant goes with the other's type."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    return op.matched(first, second), op.matched(second, first)


def _arithmetic(op: Operator, code: OperationCode) -> None:
    """ADD, SUB, MUL, DIV: (input0, input1)."""
    first, second = op.input(0, "input0"), op.input(1, "input1")
    if op.output_tensor().type not in _ARITHMETIC:
        op.fail(f"type {op.output_tensor().type.name} is not supported")
    activation = int32(op.activation())
    if first.type in QUANT8_TYPES and _through_float(code, first, second, op.prototype()):
        op.result(op.through_float(code, [first, second], [activation]))
    elif first.type == OperandCode.TENSOR_INT32 == second.type:
        is_quotient = code == OperationCode.DIV
        result = truncated_quotient(op, first, second) if is_quotient else _plain_pair(op, code, first, second)
        if op.output_tensor().type in _SHORT:
            result = as_output(op, result)
        op.result(activated(op, result, op.activation()))
    else:
        op.result(op.emit(code, [op.matched(first, second), op.matched(second, first), activation]))


def _plain_pair(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, _NO_ACTIVATION], first)


def _through_float(code: OperationCode, first: Value, second: Value, output: Value) -> bool:
    """Tell whether NNAPI has no quantised form: DIV, and MUL into a scale that is not above the inputs' product."""
    return code == OperationCode.DIV or (code == OperationCode.MUL and output.scale <= first.scale * second.scale)


@converts(BuiltinOperator.ADD, inputs=2, version=6)
def _add(op: Operator) -> None:
    _arithmetic(op, OperationCode.ADD)


@converts(BuiltinOperator.SUB, inputs=2, version=5)
def _sub(op: Operator) -> None:
    _arithmetic(op, OperationCode.SUB)


@converts(BuiltinOperator.MUL, inputs=2, version=8)
def _mul(op: Operator) -> None:
    _arithmetic(op, OperationCode.MUL)


@converts(BuiltinOperator.DIV, inputs=2, version=2)
def _div(op: Operator) -> None:
    _arithmetic(op, OperationCode.DIV)


@converts(BuiltinOperator.ADD_N, inputs=None)
def _add_n(op: Operator) -> None:
    """(inputs ...) of one shape."""
    total = op.input(0, "input")
    for position in range(1, op.input_count):
        total = op.emit(OperationCode.ADD, [total, op.input(position, "input"), _NO_ACTIVATION], total)
    op.result(total)


@converts(BuiltinOperator.SQUARED_DIFFERENCE, inputs=2, version=2)
def _squared_difference(op: Operator) -> None:
    """(input0, input1)."""
    first, second = (op.dequantize(value) for value in _pair(op)) if op.prototype().is_quantized else _pair(op)
    difference = op.emit(OperationCode.SUB, [first, second, _NO_ACTIVATION], first)
    square = op.emit(OperationCode.MUL, [difference, difference, _NO_ACTIVATION], first)
    op.result(op.emit(OperationCode.QUANTIZE, [square]) if op.prototype().is_quantized else square)


def _extremum(op: Operator, code: OperationCode) -> None:
    """MAXIMUM, MINIMUM: (input0, input1); TFLite wants one quantisation throughout."""
    op.result(op.emit(code, [*_pair(op)]))


@converts(BuiltinOperator.MAXIMUM, inputs=2, version=4)
def _maximum(op: Operator) -> None:
    _extremum(op, OperationCode.MAXIMUM)


@converts(BuiltinOperator.MINIMUM, inputs=2, version=4)
def _minimum(op: Operator) -> None:
    _extremum(op, OperationCode.MINIMUM)


@converts(BuiltinOperator.POW, inputs=2)
def _pow(op: Operator) -> None:
    """(base, exponent) of real numbers, or of integers where the exponent is a constant; low powers are products."""
    base, exponent = _pair(op)
    if base.type == OperandCode.TENSOR_INT32 == exponent.type:
        op.result(power(op, base, op.array(1, "exponent")))
        return
    known = exponent.data.item() if exponent.data is not None and exponent.data.size == 1 else None
    if known is None or exponent.rank > base.rank:
        op.result(op.emit(OperationCode.POW, [base, exponent]))
    else:
        op.result(_known_power(op, base, exponent, known))


def _known_power(op: Operator, base: Value, exponent: Value, known: float) -> Value:
    """Return real numbers to a power in one of the ways that take less than POW, if there is one."""
    if known == 0.5:
        return op.emit(OperationCode.SQRT, [base])
    if known == -0.5:
        return op.emit(OperationCode.RSQRT, [base])
    if known in range(1, _MOST_FACTORS + 1):
        return _product_of_squares(op, base, int(known))
    return op.emit(OperationCode.POW, [base, exponent])


def _product_of_squares(op: Operator, base: Value, exponent: int) -> Value:
    if exponent == 1:
        return base
    half = _product_of_squares(op, base, exponent // 2)
    square = op.emit(OperationCode.MUL, [half, half, _NO_ACTIVATION])
    return op.emit(OperationCode.MUL, [square, base, _NO_ACTIVATION]) if exponent % 2 else square


def _comparison(op: Operator, code: OperationCode) -> None:
    """EQUAL and its kin: (input0, input1)."""
    op.result(op.emit(code, [*_pair(op)]))


@converts(BuiltinOperator.EQUAL, inputs=2, version=5)
def _equal(op: Operator) -> None:
    _comparison(op, OperationCode.EQUAL)


@converts(BuiltinOperator.NOT_EQUAL, inputs=2, version=4)
def _not_equal(op: Operator) -> None:
    _comparison(op, OperationCode.NOT_EQUAL)


@converts(BuiltinOperator.GREATER, inputs=2, version=2)
def _greater(op: Operator) -> None:
    _comparison(op, OperationCode.GREATER)


@converts(BuiltinOperator.GREATER_EQUAL, inputs=2, version=3)
def _greater_equal(op: Operator) -> None:
    _comparison(op, OperationCode.GREATER_EQUAL)


@converts(BuiltinOperator.LESS, inputs=2, version=3)
def _less(op: Operator) -> None:
    _comparison(op, OperationCode.LESS)


@converts(BuiltinOperator.LESS_EQUAL, inputs=2, version=2)
def _less_equal(op: Operator) -> None:
    _comparison(op, OperationCode.LESS_EQUAL)


@converts(BuiltinOperator.LOGICAL_AND, inputs=2)
def _logical_and(op: Operator) -> None:
    op.result(op.emit(OperationCode.LOGICAL_AND, [*_pair(op)]))


@converts(BuiltinOperator.LOGICAL_OR, inputs=2)
def _logical_or(op: Operator) -> None:
    op.result(op.emit(OperationCode.LOGICAL_OR, [*_pair(op)]))


@converts(BuiltinOperator.LOGICAL_NOT, inputs=1)
def _logical_not(op: Operator) -> None:
    op.result(op.emit(OperationCode.LOGICAL_NOT, [op.input(0, "input")]))


def _function(op: Operator, code: OperationCode) -> None:
    """Emit a function of one element; a quantised one is computed in float32."""
    source = op.input(0, "input")
    op.result(op.through_float(code, [source]) if source.is_quantized else op.emit(code, [source]))


@converts(BuiltinOperator.ABS, inputs=1, version=5)
def _abs(op: Operator) -> None:
    _function(op, OperationCode.ABS)


@converts(BuiltinOperator.NEG, inputs=1)
def _neg(op: Operator) -> None:
    _function(op, OperationCode.NEG)


@converts(BuiltinOperator.EXP, inputs=1, version=2)
def _exp(op: Operator) -> None:
    _function(op, OperationCode.EXP)


@converts(BuiltinOperator.LOG, inputs=1, version=2)
def _log(op: Operator) -> None:
    _function(op, OperationCode.LOG)


@converts(BuiltinOperator.SQRT, inputs=1, version=2)
def _sqrt(op: Operator) -> None:
    _function(op, OperationCode.SQRT)


@converts(BuiltinOperator.RSQRT, inputs=1, version=3)
def _rsqrt(op: Operator) -> None:
    _function(op, OperationCode.RSQRT)


@converts(BuiltinOperator.SIN, inputs=1, version=2)
def _sin(op: Operator) -> None:
    _function(op, OperationCode.SIN)


@converts(BuiltinOperator.COS, inputs=1, version=2)
def _cos(op: Operator) -> None:
    """(input): 1 - 2 sin(x / 2)^2, as exact for large x as SIN is; x + pi / 2 would be rounded."""
    half, two, one = (constant(np.array([number], np.float32)) for number in (0.5, 2, 1))
    sine = op.emit(OperationCode.SIN, [op.emit(OperationCode.MUL, [op.input(0, "x"), half, _NO_ACTIVATION])])
    square = op.emit(OperationCode.MUL, [sine, sine, _NO_ACTIVATION])
    op.result(
        op.emit(OperationCode.SUB, [one, op.emit(OperationCode.MUL, [square, two, _NO_ACTIVATION]), _NO_ACTIVATION])
    )


@converts(BuiltinOperator.FLOOR, inputs=1)
def _floor(op: Operator) -> None:
    _function(op, OperationCode.FLOOR)


@converts(BuiltinOperator.CEIL, inputs=1)
def _ceil(op: Operator) -> None:
    """(input): -floor(-x)."""
    floor = op.emit(OperationCode.FLOOR, [op.emit(OperationCode.NEG, [op.input(0, "x")])])
    op.result(op.emit(OperationCode.NEG, [floor]))


@converts(BuiltinOperator.SQUARE, inputs=1)
def _square(op: Operator) -> None:
    """(input)."""
    source = op.input(0, "input")
    op.result(op.emit(OperationCode.MUL, [source, source, _NO_ACTIVATION]))
