# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and its kin."""

from __future__ import annotations

def _padding(op: Operator) -> Value:
    """Padding option 0 SAME, 1 VALID, as a scalar."""
    number = op.option("padding")
    if number not in (0, 1):
        op.fail(f"padding must be 0 (SAME) or 1 (VALID), got {number}")
    return int32(PaddingCode.VALID if number else PaddingCode.SAME)


def _window(op: Operator, *extra: Value) -> list[Value]:
    """Inputs of a convolution from the padding on; dilations only where there are any."""
    rest = [_padding(op), int32(op.option("stride_w")), int32(op.option("stride_h")), *extra, int32(op.activation())]
    dilations = [op.option("dilation_w_factor"), op.option("dilation_h_factor")]
    if dilations == [1, 1]:
        return rest
    return [*rest, scalar(OperandCode.BOOL, False), *(int32(dilation) for dilation in dilations)]


@converts(BuiltinOperator.CONV_2D)
def _conv_2d(op: Operator) -> None:
    """(input, filter [depth_out, height, width, depth_in], bias or none)."""
    source = op.input(0, "input", rank=4)
    weights = op.matched(op.input(1, "filter", rank=4), source)
    bias = op.bias(2, source, weights, (weights.shape or (0,))[0])
    op.result(op.emit(OperationCode.CONV_2D, [source, weights, bias, *_window(op)]))


@converts(BuiltinOperator.DEPTHWISE_CONV_2D)
def _depthwise_conv_2d(op: Operator) -> None:
    """(input, filter [1, height, width, depth_out], bias or none); the multiplier follows from the shapes."""
    source = op.input(0, "input", rank=4)
    weights = op.matched(op.input(1, "filter", rank=4), source)
    depth_in, depth_out = (source.shape or (1,))[-1], (weights.shape or (0,))[-1]
    bias = op.bias(2, source, weights, depth_out)
    window = _window(op, int32(depth_out // depth_in))
    op.result(op.emit(OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *window]))


