# SPDX-License-Identifier: Apache-2.0
"""Activations and normalisations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operator_inputs import ACTIVATIONS
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, real_scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


def _relu(op: Operator, code: OperationCode, activation: FuseCode) -> None:
    """RELU and its kin: (input); a quantised one may rescale."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.is_quantized and not source.same_quantization(wanted):
        op.result(op.requantize(source, wanted, activation))
    else:
        op.result(op.emit(code, [source], source))


@converts(BuiltinOperator.RELU, inputs=1, version=3)
def _relu_0(op: Operator) -> None:
    _relu(op, OperationCode.RELU, FuseCode.RELU)


@converts(BuiltinOperator.RELU_N1_TO_1, inputs=1)
def _relu_1(op: Operator) -> None:
    _relu(op, OperationCode.RELU1, FuseCode.RELU1)


@converts(BuiltinOperator.RELU6, inputs=1, version=3)
def _relu_6(op: Operator) -> None:
    _relu(op, OperationCode.RELU6, FuseCode.RELU6)


def _fixed_scale(op: Operator, code: OperationCode, scale: float, zero_point: int, *rest: Value) -> None:
    """Emit an operation whose quantised output has one scale and (unsigned) zero point, or go through float32."""
    source, wanted = op.input(0, "input"), op.prototype()
    shifted = wanted.zero_point + (128 if wanted.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0)
    if source.is_quantized and (source.type != wanted.type or (wanted.scale, shifted) != (scale, zero_point)):
        op.result(op.through_float(code, [source], rest))
    else:
        op.result(op.emit(code, [source, *rest]))


@converts(BuiltinOperator.LOGISTIC, inputs=1, version=3)
def _logistic(op: Operator) -> None:
    _fixed_scale(op, OperationCode.LOGISTIC, 1 / 256, 0)


@converts(BuiltinOperator.TANH, inputs=1, version=3)
def _tanh(op: Operator) -> None:
    _fixed_scale(op, OperationCode.TANH, 1 / 128, 128)


@converts(BuiltinOperator.SOFTMAX, inputs=1, version=4)
def _softmax(op: Operator) -> None:
    beta = real_scalar(op.input(0, "input"), op.real_option("beta"))
    _fixed_scale(op, OperationCode.SOFTMAX, 1 / 256, 0, beta)


@converts(BuiltinOperator.HARD_SWISH, inputs=1)
def _hard_swish(op: Operator) -> None:
    op.result(op.emit(OperationCode.HARD_SWISH, [op.input(0, "input")]))


@converts(BuiltinOperator.RELU_0_TO_1, inputs=1)
def _relu_0_to_1(op: Operator) -> None:
    """(input); a quantised one may rescale."""
    source, wanted = op.input(0, "input"), op.prototype()
    value = (
        op.requantize(source, wanted, FuseCode.RELU) if source.is_quantized else op.emit(OperationCode.RELU, [source])
    )
    op.result(op.emit(OperationCode.MINIMUM, [value, _one(wanted)]))


def _one(like: Value) -> Value:
    """Return the number 1, or of a quantised type what is next to it."""
    if not like.is_quantized:
        return constant(np.ones(1, np.float32))
    dtype = dtype_of(like.type)
    integer = min(like.zero_point + round(1 / like.scale), np.iinfo(dtype).max)
    return replace(like, shape=(1,), data=np.array([integer], dtype))


@converts(BuiltinOperator.ELU, inputs=1)
def _elu(op: Operator) -> None:
    """(input): alpha is 1; a quantised one is computed in float32."""
    source = op.input(0, "input")
    alpha = real_scalar(source, 1.0)
    if source.is_quantized:
        op.result(op.through_float(OperationCode.ELU, [source], [alpha]))
    else:
        op.result(op.emit(OperationCode.ELU, [source, alpha]))


@converts(BuiltinOperator.PRELU, inputs=2)
def _prelu(op: Operator) -> None:
    """(input, alpha)."""
    source = op.input(0, "input")
    op.result(op.emit(OperationCode.PRELU, [source, op.matched(op.input(1, "alpha"), source)]))


@converts(BuiltinOperator.LEAKY_RELU, inputs=1, version=2)
def _leaky_relu(op: Operator) -> None:
    """(input): PRELU with one alpha; a quantised alpha is the integer 1, 0 or -1 with alpha as its scale."""
    source, alpha = op.input(0, "input"), op.real_option("alpha")
    if source.is_quantized:
        zero_point = 1 if source.type == OperandCode.TENSOR_QUANT8_ASYMM else 0
        integer = np.array([zero_point + int(np.sign(alpha))], dtype_of(source.type))
        slope = Value(source.type, (1,), abs(alpha) or 1.0, zero_point, data=integer)
    else:
        slope = constant(np.array([alpha], np.float32))
    op.result(op.emit(OperationCode.PRELU, [source, slope]))


@converts(BuiltinOperator.GELU, inputs=1, version=3)
def _gelu(op: Operator) -> None:
    """(input): x times the normal distribution's function, or its approximation by tanh; quantised: in float32."""
    source = op.input(0, "input")
    x = op.dequantize(source) if source.is_quantized else source
    inner = _product(op, x, _of_tanh(op, x) if op.option("approximate") else _of_normal(op, x))
    result = _product(op, x, op.emit(OperationCode.LOGISTIC, [inner], x))
    op.result(op.emit(OperationCode.QUANTIZE, [result]) if source.is_quantized else result)


def _of_tanh(op: Operator, x: Value) -> Value:
    """Return p with logistic(x * p) = (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2."""
    slope = 2 * np.sqrt(2 / np.pi)
    return _sum(op, _product(op, _product(op, x, x), _number(x, 0.044715 * slope)), _number(x, slope))


def _of_normal(op: Operator, x: Value) -> Value:
    """Return p with logistic(x * p) = F(x), the normal distribution's function, for which NNAPI has no operation.

    x * F(x) is off by at most 2e-7 of x, or of 1 where |x| < 1.
    """
    part = op.emit(OperationCode.MUL, [x, _number(x, 1 / _GELU_END), int32(FuseCode.RELU1)], x)
    square = _product(op, part, part)
    polynomial = _number(x, _GELU_POLYNOMIAL[0])
    for coefficient in _GELU_POLYNOMIAL[1:]:
        polynomial = _sum(op, _product(op, square, polynomial), _number(x, coefficient))
    return polynomial


_GELU_END = 6.0
"""Where the normal distribution's function is 1 but for 1e-9."""
_GELU_POLYNOMIAL = (7.860866110, -16.13798599, 13.33315852, -5.154569464, -0.08587296298, 2.616068414, 1.595768432)
"""log(F(x) / (1 - F(x))) / x for that function F, from the highest power of (x / 6)^2 down: fitted by iterated least
squares (Lawson's) to where x * F(x) is off least, 6.7e-8 before rounding.
"""


def _number(like: Value, number: float) -> Value:
    return constant(np.array([number], dtype_of(like.type)))


def _product(op: Operator, first: Value, second: Value) -> Value:
    return op.emit(OperationCode.MUL, [first, second, int32(FuseCode.NONE)], first)


def _sum(op: Operator, first: Value, second: Value) -> Value:
    return op.emit(OperationCode.ADD, [first, second, int32(FuseCode.NONE)], first)


@converts(BuiltinOperator.LOG_SOFTMAX, inputs=1, version=2)
def _log_softmax(op: Operator) -> None:
    """(input) along the last axis; a quantised one is computed in float32."""
    source = op.input(0, "input")
    rest = [real_scalar(source, 1.0), int32(-1)]
    if source.is_quantized:
        op.result(op.through_float(OperationCode.LOG_SOFTMAX, [source], rest))
    else:
        op.result(op.emit(OperationCode.LOG_SOFTMAX, [source, *rest]))


@converts(BuiltinOperator.L2_NORMALIZATION, inputs=1, version=2)
def _l2_normalization(op: Operator) -> None:
    """(input) along the last axis."""
    op.activation(refused=range(1, len(ACTIVATIONS)))
    op.result(op.emit(OperationCode.L2_NORMALIZATION, [op.input(0, "input"), int32(-1)]))


@converts(BuiltinOperator.LOCAL_RESPONSE_NORMALIZATION, inputs=1)
def _local_response_normalization(op: Operator) -> None:
    """(input) along the last axis."""
    source = op.input(0, "input")
    parameters = [real_scalar(source, op.real_option(name)) for name in ("bias", "alpha", "beta")]
    inputs = [source, int32(op.option("radius")), *parameters]
    op.result(op.emit(OperationCode.LOCAL_RESPONSE_NORMALIZATION, inputs))
