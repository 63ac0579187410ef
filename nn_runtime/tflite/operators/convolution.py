# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and its kin."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.custom_options import SAME, structure
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value


def padding_scheme(op: Operator) -> Value:
    """Padding option 0 SAME, 1 VALID, as a scalar."""
    number = op.option("padding")
    if number not in (0, 1):
        op.fail(f"padding must be 0 (SAME) or 1 (VALID), got {number}")
    return int32(PaddingCode.VALID if number else PaddingCode.SAME)


def convolution_window(op: Operator, *extra: Value) -> list[Value]:
    """Inputs of a convolution from the padding on; dilations only where there are any."""
    rest = [
        padding_scheme(op),
        int32(op.option("stride_w")),
        int32(op.option("stride_h")),
        *extra,
        int32(op.activation()),
    ]
    dilations = [op.option("dilation_w_factor"), op.option("dilation_h_factor")]
    if dilations == [1, 1]:
        return rest
    return [*rest, scalar(OperandCode.BOOL, False), *(int32(dilation) for dilation in dilations)]


@converts(BuiltinOperator.CONV_2D, inputs=3, version=8)
def _conv_2d(op: Operator) -> None:
    """(input, filter [depth_out, height, width, depth_in / groups], bias or none)."""
    source = op.input(0, "input", rank=4)
    weights = op.weights(1, "filter", 4, source)
    bias = op.bias(2, source, weights, (weights.shape or (0,))[0])
    depth, group_depth = (source.shape or (0,))[-1], (weights.shape or (0,))[-1]
    if group_depth and depth != group_depth and depth % group_depth == 0:
        op.result(_grouped(op, source, weights, bias, depth // group_depth))
        return
    op.result(op.emit(OperationCode.CONV_2D, [source, weights, bias, *convolution_window(op)]))


@converts(BuiltinOperator.DEPTHWISE_CONV_2D, inputs=3, version=7)
def _depthwise_conv_2d(op: Operator) -> None:
    """(input, filter [1, height, width, depth_out], bias or none); the multiplier follows from the shapes."""
    source = op.input(0, "input", rank=4)
    weights = op.matched(op.input(1, "filter", rank=4), source)
    depth_in, depth_out = (source.shape or (1,))[-1], (weights.shape or (0,))[-1]
    if not depth_in or depth_out % depth_in:
        op.fail(f"{depth_out} filters (input 1) are not as many for each of {depth_in} channels (input 0)")
    bias = op.bias(2, source, weights, depth_out)
    window = convolution_window(op, int32(depth_out // depth_in))
    op.result(op.emit(OperationCode.DEPTHWISE_CONV_2D, [source, weights, bias, *window]))


def _grouped(op: Operator, source: Value, weights: Value, bias: Value, groups: int) -> Value:
    """Return a convolution in groups, to which NNAPI knows no dilations: zeros lie between a filter's taps."""
    window = [padding_scheme(op), int32(op.option("stride_w")), int32(op.option("stride_h"))]
    tail = [int32(groups), int32(op.activation()), scalar(OperandCode.BOOL, False)]
    filters = dilated_filter(op, weights, (1, 2))
    return op.emit(OperationCode.GROUPED_CONV_2D, [source, filters, bias, *window, *tail])


def dilated_filter(op: Operator, weights: Value, axes: tuple[int, int]) -> Value:
    """Return a filter with as many zeros between its taps, along axes of height and width, as dilations leave out."""
    steps = [op.option("dilation_h_factor"), op.option("dilation_w_factor")]
    if steps == [1, 1]:
        return weights
    if weights.data is None or min(steps) < 1:
        op.fail(f"dilations need a constant filter (input 1), and must be >= 1, got {steps}")
    shape, places = list(weights.data.shape), [slice(None)] * weights.data.ndim
    for axis, step in zip(axes, steps, strict=True):
        shape[axis], places[axis] = (shape[axis] - 1) * step + 1, slice(None, None, step)
    op.spend(math.prod(shape))
    spread = np.full(shape, weights.zero_point, weights.data.dtype)
    spread[tuple(places)] = weights.data
    return replace(weights, shape=spread.shape, data=spread)


@converts(BuiltinOperator.TRANSPOSE_CONV, inputs=4, version=5)
def _transpose_conv(op: Operator) -> None:
    """(output shape, filter [depth_out, height, width, depth_in], input, bias or none)."""
    source = op.input(2, "input", rank=4)
    weights = op.weights(1, "filter", 4, source)
    bias = op.bias(3, source, weights, (weights.shape or (0,))[0])
    op.result(transposed_convolution(op, source, weights, bias, op.by_dimension(0, "output_shape")))


def transposed_convolution(op: Operator, source: Value, weights: Value, bias: Value, shape: list[int]) -> Value:
    """Return a TRANSPOSE_CONV_2D of a shape, with padding, strides and activation of the options."""
    window = [padding_scheme(op), int32(op.option("stride_w")), int32(op.option("stride_h"))]
    tail = [int32(op.activation()), scalar(OperandCode.BOOL, False)]
    source, grown = _grown(op, source, weights, shape)
    result = op.emit(OperationCode.TRANSPOSE_CONV_2D, [source, weights, bias, int32_vector(grown), *window, *tail])
    if result.shape != tuple(grown):
        op.fail(f"output_shape (input 0) must be {list(result.shape or ())}, got {grown}")
    if grown != shape:
        result = op.emit(OperationCode.SLICE, [result, int32_vector((0, 0, 0, 0)), int32_vector(shape)])
    return result


def _grown(op: Operator, source: Value, weights: Value, shape: list[int]) -> tuple[Value, list[int]]:
    """Return an input with a row or column of zeros behind it, and the output that it gives.

    There where a VALID output has fewer than a stride more than products reach, of which NNAPI knows nothing.
    """
    sizes, taps, strides = (
        (source.shape or ())[1:3],
        (weights.shape or ())[1:3],
        (op.option("stride_h"), op.option("stride_w")),
    )
    reached = [(size - 1) * stride + tap for size, stride, tap in zip(sizes, strides, taps, strict=True)]
    more = [wanted - size for wanted, size in zip(shape[1:3], reached, strict=False)]
    is_valid = op.option("padding") == 1
    if not (is_valid and len(shape) == 4 and any(more)) or any(
        not 0 <= n < by for n, by in zip(more, strides, strict=True)
    ):
        return source, shape
    behind = [[0, 0], *([0, int(n > 0)] for n in more), [0, 0]]
    padded = op.emit(OperationCode.PAD, [source, constant(np.array(behind, np.int32))], source)
    height, width = (size + stride * (n > 0) for size, stride, n in zip(reached, strides, more, strict=True))
    return padded, [shape[0], height, width, shape[3]]


@converts("Convolution2DTransposeBias", inputs=3)
def _transpose_conv_bias(op: Operator) -> None:
    """(input, filter [depth_out, height, width, depth_in], bias): MediaPipe's, whose options are TransposeConvParams.

    What SAME padding takes away is told by the last step of the stride, so that odd sizes grow by less than the stride.
    """
    source = op.input(0, "input", rank=4)
    weights = op.weights(1, "filter", 4, source)
    bias = op.bias(2, source, weights, (weights.shape or (0,))[0])
    padding, stride_width, stride_height = _transpose_options(op)
    sizes, filters = (source.shape or ())[1:3], (weights.shape or ())[1:3]
    paddings = []
    for size, taps, stride in zip(reversed(sizes), reversed(filters), (stride_width, stride_height), strict=True):
        total = max(0, taps - (size - 1) % stride - 1) if padding == SAME else 0
        paddings += [int32(total // 2), int32(total - total // 2)]
    tail = [int32(stride_width), int32(stride_height), int32(FuseCode.NONE), scalar(OperandCode.BOOL, False)]
    op.result(op.emit(OperationCode.TRANSPOSE_CONV_2D, [source, weights, bias, *paddings, *tail]))


def _transpose_options(op: Operator) -> tuple[int, int, int]:
    """Return padding, stride_width and stride_height; the structure's later members must be 0."""
    padding, stride_width, stride_height, *later = structure(op, ("padding", "stride_width", "stride_height"))
    if any(later):
        op.fail(f"options behind padding, stride_width and stride_height must be 0, got {later}")
    return padding, stride_width, stride_height
