# SPDX-License-Identifier: Apache-2.0
"""The same elements in another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.spectrum import real_part
from nn_runtime.tflite.operators.whole_numbers import as_output, converted, plain, whole_numbers
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import real

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_REAL = OperandCode.TENSOR_FLOAT32
_WHOLE_NUMBERS = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


@converts(BuiltinOperator.QUANTIZE, inputs=1, version=6)
def _quantize(op: Operator) -> None:
    """(input): real numbers become quantised, or quantised ones get another scale or signedness.

    16-bit integers are real numbers (sixteen_bit.py), which stay what they are.
    """
    source, wanted = op.input(0, "input"), op.prototype()
    if wanted.type == _REAL:
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
        op.result(op.emit(OperationCode.CAST, [plain(op, source)]))
