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
from nn_runtime.tflite.values import Value, constant, int32, real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

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
    else:
        plain = _plain(op, source)
        if wanted.type == OperandCode.TENSOR_QUANT8_ASYMM and source.type in _WHOLE_NUMBERS:
            plain = _lowest_byte(op, plain)
        op.result(op.emit(OperationCode.CAST, [plain]))


def _lowest_byte(op: Operator, numbers: Value) -> Value:
    """Return what is left of whole numbers in a byte: NNAPI's CAST cuts them to 0 and 255, TFLite's does not."""
    whole = Value(OperandCode.TENSOR_INT32)
    if numbers.type != whole.type:
        numbers = op.emit(OperationCode.CAST, [numbers], whole)
    byte = constant(np.array([256], np.int32))
    none = int32(FuseCode.NONE)
    blocks = op.emit(OperationCode.DIV, [numbers, byte, none], whole)  # rounded down
    return op.emit(OperationCode.SUB, [numbers, op.emit(OperationCode.MUL, [blocks, byte, none], whole), none], whole)


def _plain(op: Operator, source: Value) -> Value:
    """Return numbers in a type that CAST takes: bytes for booleans, real numbers for signed bytes."""
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        raw = op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
        return op.dequantize(raw)
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM:
        return op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
    return op.as_integers(source)
