# SPDX-License-Identifier: Apache-2.0
"""Activations and normalisations."""

from __future__ import annotations

def _relu(op: Operator, code: OperationCode, activation: FuseCode) -> None:
    """RELU and its kin: (input); a quantised one may rescale."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.is_quantized and not source.same_quantization(wanted):
        op.result(op.requantize(source, wanted, activation))
    else:
        op.result(op.emit(code, [source], source))


@converts(BuiltinOperator.RELU)
def _relu_0(op: Operator) -> None:
    _relu(op, OperationCode.RELU, FuseCode.RELU)


@converts(BuiltinOperator.RELU_N1_TO_1)
def _relu_1(op: Operator) -> None:
    _relu(op, OperationCode.RELU1, FuseCode.RELU1)


@converts(BuiltinOperator.RELU6)
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


@converts(BuiltinOperator.LOGISTIC)
def _logistic(op: Operator) -> None:
    _fixed_scale(op, OperationCode.LOGISTIC, 1 / 256, 0)


@converts(BuiltinOperator.TANH)
def _tanh(op: Operator) -> None:
    _fixed_scale(op, OperationCode.TANH, 1 / 128, 128)


@converts(BuiltinOperator.SOFTMAX)
def _softmax(op: Operator) -> None:
    _fixed_scale(op, OperationCode.SOFTMAX, 1 / 256, 0, scalar(OperandCode.FLOAT32, op.real_option("beta")))


@converts(BuiltinOperator.HARD_SWISH)
def _hard_swish(op: Operator) -> None:
    op.result(op.emit(OperationCode.HARD_SWISH, [op.input(0, "input")]))
