# SPDX-License-Identifier: Apache-2.0
"""The same elements in another type."""

from __future__ import annotations

@converts(BuiltinOperator.QUANTIZE)
def _quantize(op: Operator) -> None:
    """(input): real numbers become quantised, or quantised ones get another scale or signedness."""
    source, wanted = op.input(0, "input"), op.prototype()
    if wanted.type not in QUANT8_TYPES:
        op.fail(f"the output must be UINT8 or INT8, got {op.output_tensor().type.name}")
    if source.is_quantized:
        if source.type not in QUANT8_TYPES:
            op.fail("the input must be FLOAT32, UINT8 or INT8")
        op.result(op.requantize(source, wanted))
    else:
        op.result(op.emit(OperationCode.QUANTIZE, [source]))


@converts(BuiltinOperator.DEQUANTIZE)
def _dequantize(op: Operator) -> None:
    """(input): constants become real at once, float16 ones too."""
    source = op.input(0, "input")
    if source.data is not None:
        op.result(real(source))
    elif source.type == OperandCode.TENSOR_FLOAT16:
        op.result(op.emit(OperationCode.CAST, [source]))
    else:
        op.result(op.emit(OperationCode.DEQUANTIZE, [source]))


@converts(BuiltinOperator.CAST)
def _cast(op: Operator) -> None:
    """(input): raw numbers, whatever their scale; INT32 and INT64 are one here."""
    source, wanted = op.input(0, "input"), op.prototype()
    if source.type == wanted.type and not source.is_quantized:
        op.result(source)
    else:
        op.result(op.emit(OperationCode.CAST, [source]))
