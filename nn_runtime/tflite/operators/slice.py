# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor, and what lies around it."""

from __future__ import annotations

@converts(BuiltinOperator.SLICE)
def _slice(op: Operator) -> None:
    """(input, begin, size); a size -1 goes to the end."""
    source = op.input(0, "input")
    bounds = [int32_vector(op.integers(1, "begin")), int32_vector(op.integers(2, "size"))]
    op.result_of_same_quantization(op.emit(OperationCode.SLICE, [source, *bounds], source))


@converts(BuiltinOperator.STRIDED_SLICE)
def _strided_slice(op: Operator) -> None:
    """(input, begin, end, strides)."""
    source = op.input(0, "input")
    slices, dropped = strided_slices(op, source.shape or ())
    # Past the front there is no end to name: a mask says so.
    end_mask = sum(1 << axis for axis, (_, end, _) in enumerate(slices) if end < 0)
    shrink_mask = sum(1 << axis for axis in dropped)
    bounds = [int32_vector(values) for values in zip(*slices, strict=True)]
    masks = [int32(0), int32(end_mask), int32(shrink_mask)]
    op.result_of_same_quantization(op.emit(OperationCode.STRIDED_SLICE, [source, *bounds, *masks], source))


@converts(BuiltinOperator.PAD)
def _pad(op: Operator) -> None:
    """(input, paddings [rank, 2])."""
    source = op.input(0, "input")
    op.result_of_same_quantization(op.emit(OperationCode.PAD, [source, _paddings(op)], source))


@converts(BuiltinOperator.PADV2)
def _pad_v2(op: Operator) -> None:
    """(input, paddings [rank, 2], value): a quantised value is given in the input's integers."""
    source = op.input(0, "input")
    value = op.array(2, "constant_values").reshape(-1)
    if value.size != 1:
        op.fail(f"constant_values (input 2) must have one element, got {value.size}")
    pad_value = int32(int(value[0])) if source.is_quantized else scalar(OperandCode.FLOAT32, float(value[0]))
    op.result_of_same_quantization(op.emit(OperationCode.PAD_V2, [source, _paddings(op), pad_value], source))


def _paddings(op: Operator) -> Value:
    array = op.array(1, "paddings")
    op.integers(1, "paddings")
    return constant(array)
