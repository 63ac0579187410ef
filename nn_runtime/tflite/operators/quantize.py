# SPDX-License-Identifier: Apache-2.0
"""The same elements in another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.rounding import nearest
from nn_runtime.tflite.operators.spectrum import real_part
from nn_runtime.tflite.operators.whole_numbers import as_output, converted, plain, whole_numbers
from nn_runtime.tflite.tensor_reader import quoted
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import Value, constant, int32, real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.types import TfliteTensor

_REAL, _INTEGERS = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
_WHOLE_NUMBERS = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


@converts(BuiltinOperator.QUANTIZE, inputs=1, version=6)
def _quantize(op: Operator) -> None:
    """(input): real numbers become quantised, or quantised ones get another scale or signedness.

    16-bit integers are real numbers (sixteen_bit.py), which stay what they are; 32-bit ones with a scale are made of
    them, and become such first.
    """
    source, wanted = op.input(0, "input"), op.prototype()
    if source.type == _INTEGERS:
        source = _of_scale(op, source)
    if wanted.type == _REAL:
        op.result(op.dequantize(source))
        return
    if wanted.type == _INTEGERS and source.type == _REAL:
        op.result(_on_scale(op, source))
        return
    if wanted.type not in QUANT8_TYPES:
        op.fail(f"the output must be UINT8 or INT8, got {op.output_tensor().type.name}")
    if source.is_quantized:
        if source.type not in QUANT8_TYPES:
            op.fail("the input must be FLOAT32, UINT8 or INT8")
        op.result(op.requantize(source, wanted))
    else:
        op.result(op.emit(OperationCode.QUANTIZE, [source]))


def _of_scale(op: Operator, source: Value) -> Value:
    """Return the real numbers that 32-bit integers stand for."""
    scale, zero_point = _scale(op, op.input_tensor(0))
    numbers = op.emit(OperationCode.CAST, [source], Value(_REAL))
    return _computed(op, OperationCode.MUL, _computed(op, OperationCode.SUB, numbers, zero_point), scale)


def _on_scale(op: Operator, source: Value) -> Value:
    """Return 32-bit integers that stand for real numbers, to 24 bits."""
    scale, zero_point = _scale(op, op.output_tensor())
    steps = nearest(op, _computed(op, OperationCode.DIV, source, scale))
    return op.emit(OperationCode.CAST, [_computed(op, OperationCode.ADD, steps, zero_point)])


def _computed(op: Operator, code: OperationCode, numbers: Value, number: float) -> Value:
    return op.emit(code, [numbers, constant(np.full(1, number, np.float32)), int32(FuseCode.NONE)], Value(_REAL))


def _scale(op: Operator, tensor: TfliteTensor) -> tuple[float, int]:
    """Return the one scale and zero point of 32-bit integers."""
    quantization = tensor.quantization
    if quantization is None or quantization.scales.size != 1:
        op.fail(f"{quoted(tensor.name)}: INT32 must have one scale")
    return float(quantization.scales[0]), int(quantization.zero_points[0])


@converts(BuiltinOperator.DENSIFY, inputs=1)
def _densify(op: Operator) -> None:
    """(input): the reader has made the sparse constant dense."""
    op.array(0, "input")
    op.result(op.input(0, "input"))


@converts(BuiltinOperator.DEQUANTIZE, inputs=1, version=9)
def _dequantize(op: Operator) -> None:
    """(input): constants become real at once, float16 ones too; a variable tensor only begins with them."""
    source = op.input(0, "input")
    if source.data is not None:
        op.first_result(real(source))
    elif source.type == _REAL:
        op.result(source)
    elif source.type == OperandCode.TENSOR_FLOAT16:
        op.result(op.emit(OperationCode.CAST, [source]))
    else:
        op.result(op.emit(OperationCode.DEQUANTIZE, [source]))


@converts(BuiltinOperator.CAST, inputs=1, version=9)
def _cast(op: Operator) -> None:
    """(input): raw numbers, whatever their scale; INT32 and INT64 are one here; of complex ones the real part.

    Integers that are known become real at once, as ranges may be made of them.
    """
    spectrum = op.spectrum(0)
    if spectrum is not None:
        if op.prototype().type != _REAL:
            op.fail(f"a transform can become FLOAT32 alone, not {op.output_tensor().type.name}")
        op.result(real_part(op, spectrum))
        return
    source, wanted = op.input(0, "input"), op.prototype()
    if op.output_tensor().type in (TensorType.INT16, TensorType.UINT16) and not wanted.is_quantized:
        op.result(converted(op, source))
    elif source.type == wanted.type and not source.is_quantized:
        op.result(source)
    elif source.type == wanted.type:
        op.result(op.emit(OperationCode.CAST, [source]))
    elif source.type == OperandCode.TENSOR_INT32 and wanted.type == _REAL and source.data is not None:
        op.spend(source.data.size)
        op.result(real(source))
    elif wanted.type == OperandCode.TENSOR_BOOL8:
        op.result(op.as_booleans(plain(op, source)))
    elif wanted.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        op.result(converted(op, source))
    elif wanted.type == OperandCode.TENSOR_QUANT8_ASYMM and source.type in _WHOLE_NUMBERS:
        op.result(as_output(op, whole_numbers(op, source)))
    else:
        op.result(_cast_plainly(op, source, wanted))


def _cast_plainly(op: Operator, source: Value, wanted: Value) -> Value:
    """Return the numbers in another type; truth values that are no bytes yet choose real numbers."""
    is_chosen = source.type == OperandCode.TENSOR_BOOL8 and wanted.type == _REAL and source.data is None
    if not is_chosen or op.has_bytes(source):
        return op.emit(OperationCode.CAST, [plain(op, source)])
    ones = constant(op.filled(source, 1, np.float32))
    return op.emit(OperationCode.SELECT, [source, ones, op.zeros_like(source)])
