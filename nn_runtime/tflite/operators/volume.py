# SPDX-License-Identifier: Apache-2.0
"""CONV_3D: convolutions of volumes, which NNAPI has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.convolution import convolution_window
from nn_runtime.tflite.values import constant, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_MAX_TAPS = 256
"""Of a filter, along the depth of the volume."""


@converts(BuiltinOperator.CONV_3D, inputs=3)
def _conv_3d(op: Operator) -> None:
    """(input [batches, frames, height, width, depth_in], filter [taps, height, width, depth_in, depth_out], bias).

    Frames are images of a batch. Those that a filter's taps meet lie side by side in an image's depth: one CONV_2D.
    """
    source = op.input(0, "input", rank=5)
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"input (input 0) must be FLOAT32, got {OperandCode(source.type).name}")
    filters = op.matched(op.input(1, "filter", rank=5), source).data
    if filters is None:
        op.fail("filter (input 1) must be a constant")
    taps, height, width, depth_in, depth_out = filters.shape
    if depth_in != (source.shape or ())[-1] or taps > _MAX_TAPS or 0 in filters.shape:
        wanted = f"1 to {_MAX_TAPS} taps and depth_in {(source.shape or ())[-1]}"
        op.fail(f"filter (input 1) must have {wanted}, got {list(filters.shape)}")
    op.spend(filters.size)
    weights = constant(filters.transpose(4, 1, 2, 0, 3).reshape(depth_out, height, width, taps * depth_in))
    bias = op.bias(2, source, weights, depth_out)
    images, frames = _images(op, source, taps)
    result = op.emit(OperationCode.CONV_2D, [images, weights, bias, *convolution_window(op)])
    op.result(op.reshape(result, ((source.shape or ())[0], frames, *(result.shape or ())[1:])))


def _images(op: Operator, source: Value, taps: int) -> tuple[Value, int]:
    """Return images [batches * frames of the result, height, width, taps * depth_in], and the number of frames."""
    batches, size, *image = source.shape or ()
    stride, dilation = op.option("stride_d"), op.option("dilation_d_factor")
    if min(stride, dilation) < 1:
        op.fail(f"stride_d and dilation_d_factor must be > 0, got {stride} and {dilation}")
    reach = (taps - 1) * dilation + 1
    is_same = op.option("padding") == 0
    frames = -(-size // stride) if is_same else (size - reach) // stride + 1
    if frames < 1:
        op.fail(f"filter (input 1) reaches over {reach} frames, of which the input has {size}")
    missing = max(0, (frames - 1) * stride + reach - size) if is_same else 0
    if missing:
        before = missing // 2
        paddings = np.array([[0, 0], [before, missing - before], *[[0, 0]] * 3], np.int32)
        source = op.emit(OperationCode.PAD, [source, constant(paddings)], source)
    met = [_frames(op, source, tap * dilation, stride, frames) for tap in range(taps)]
    images = [op.reshape(one, (batches * frames, *image)) for one in met]
    return (images[0] if taps == 1 else op.emit(OperationCode.CONCATENATION, [*images, int32(3)], source)), frames


def _frames(op: Operator, source: Value, first: int, stride: int, count: int) -> Value:
    """Return every so many of the frames."""
    batches, size, *image = source.shape or ()
    if (first, stride, count) == (0, 1, size):
        return source
    bounds = (
        [0, first, 0, 0, 0],
        [batches, first + (count - 1) * stride + 1, *image],
        [1, stride, 1, 1, 1],
    )
    masks = [int32(0)] * 3
    return op.emit(OperationCode.STRIDED_SLICE, [source, *map(int32_vector, bounds), *masks], source)
