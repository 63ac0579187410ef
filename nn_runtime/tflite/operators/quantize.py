# SPDX-License-Identifier: Apache-2.0
"""The same elements in another type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.spectrum import real_part
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_REAL, _INTEGER = Value(OperandCode.TENSOR_FLOAT32), Value(OperandCode.TENSOR_INT32)
_WHOLE_NUMBERS = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


@converts(BuiltinOperator.QUANTIZE, inputs=1, version=6)
def _quantize(op: Operator) -> None:
    """(input): real numbers become quantised, or quantised ones get another scale or signedness.

    16-bit integers are real numbers (sixteen_bit.py), which stay what they are.
    """
    source, wanted = op.input(0, "input"), op.prototype()
    if wanted.type == OperandCode.TENSOR_FLOAT32:
        op.result(op.dequantize(source))
        return
    if wanted.type not in QUANT8_TYPES:
        op.fail(f"the output must be UINT8 or INT8, got {op.output_tensor().type.name}")
    if source.is_quantized:
        if source.type not in QUANT8_TYPES:
            op.fail("the input must be FLOAT32, UINT8 or INT8")
        op.result(op.requantize(source, wanted))
    else:
        op.result(op.emit(OperationCode.QUANTIZE, [source]))


@converts(BuiltinOperator.DENSIFY, inputs=1)
def _densify(op: Operator) -> None:
    """(input): the reader has made the sparse constant dense."""
    op.array(0, "input")
    op.result(op.input(0, "input"))


@converts(BuiltinOperator.DEQUANTIZE, inputs=1, version=9)
def _dequantize(op: Operator) -> None:
    """(input): constants become real at once, float16 ones too."""
    source = op.input(0, "input")
    if source.data is not None:
        op.result(real(source))
    elif source.type == OperandCode.TENSOR_FLOAT32:
        op.result(source)
    elif source.type == OperandCode.TENSOR_FLOAT16:
        op.result(op.emit(OperationCode.CAST, [source]))
    else:
        op.result(op.emit(OperationCode.DEQUANTIZE, [source]))


@converts(BuiltinOperator.CAST, inputs=1, version=9)
def _cast(op: Operator) -> None:
    """(input): raw numbers, whatever their scale; INT32 and INT64 are one here; of complex ones the real part."""
    spectrum = op.spectrum(0)
    if spectrum is not None:
        if op.prototype().type != OperandCode.TENSOR_FLOAT32:
            op.fail(f"a transform can become FLOAT32 alone, not {op.output_tensor().type.name}")
        op.result(real_part(op, spectrum))
        return
    source, wanted = op.input(0, "input"), op.prototype()
    if source.type == wanted.type and not source.is_quantized:
        op.result(source)
    elif source.type == wanted.type:
        op.result(op.emit(OperationCode.CAST, [source]))
    elif wanted.type == OperandCode.TENSOR_BOOL8:
        op.result(op.as_booleans(_plain(op, source)))
    elif wanted.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        op.result_of_same_quantization(_signed_bytes(op, source))
    else:
        plain = _plain(op, source)
        if wanted.type == OperandCode.TENSOR_QUANT8_ASYMM and source.type in _WHOLE_NUMBERS:
            plain = _wrapped(op, plain, 0)
        op.result(op.emit(OperationCode.CAST, [plain]))


def _plain(op: Operator, source: Value) -> Value:
    """Return numbers in a type that CAST takes: bytes for booleans, real numbers for signed bytes."""
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        raw = op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
        return op.dequantize(raw)
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM:
        return op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
    return op.as_integers(source)


def _signed_bytes(op: Operator, source: Value) -> Value:
    """Return numbers as signed bytes, which CAST does not make: real ones cut off, of integers the lowest 8 bits.

    QUANTIZE makes them of whole real numbers with a scale of 1.
    """
    if source.type in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16):
        number = op.emit(OperationCode.CAST, [source], _REAL) if source.type != _REAL.type else source
        for code, bound in ((OperationCode.MAXIMUM, -128), (OperationCode.MINIMUM, 127)):
            number = op.emit(code, [number, constant(np.full(1, bound, np.float32))], _REAL)
        whole = op.emit(OperationCode.CAST, [number], _INTEGER)
    else:
        whole = _wrapped(op, _plain(op, source), -128)
    real_numbers = op.emit(OperationCode.CAST, [whole], _REAL)
    return op.emit(OperationCode.QUANTIZE, [real_numbers], Value(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, scale=1.0))


def _wrapped(op: Operator, numbers: Value, least: int) -> Value:
    """Return the lowest 8 bits of whole numbers, from `least` to 255 more; NNAPI's CAST cuts what is beyond."""
    if numbers.type != _INTEGER.type:
        numbers = op.emit(OperationCode.CAST, [numbers], _INTEGER)
    times = _with_integer(op, OperationCode.DIV, _with_integer(op, OperationCode.SUB, numbers, least), 256)
    beyond = _with_integer(op, OperationCode.MUL, times, 256)
    return op.emit(OperationCode.SUB, [numbers, beyond, int32(FuseCode.NONE)], _INTEGER)


def _with_integer(op: Operator, code: OperationCode, value: Value, number: int) -> Value:
    return op.emit(code, [value, int32_vector([number]), int32(FuseCode.NONE)], _INTEGER)
