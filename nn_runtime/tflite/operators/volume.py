# SPDX-License-Identifier: Apache-2.0
"""CONV_3D, CONV_3D_TRANSPOSE: convolutions of volumes, which NNAPI has not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.convolution import convolution_window, dilated_filter, transposed_convolution
from nn_runtime.tflite.values import constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_MAX_TAPS = 256
"""Of a filter, along the depth of the volume."""


@converts(BuiltinOperator.CONV_3D, inputs=3)
def _conv_3d(op: Operator) -> None:
    """(input [batches, frames, height, width, depth_in], filter [taps, height, width, depth_in, depth_out], bias).

    Frames are images of a batch. Those that a filter's taps meet lie side by side in an image's depth: one CONV_2D.
    """
    source = _volume(op, 0)
    filters = _filters(op, source, depth_axis=3)
    weights = _side_by_side(filters.transpose(0, 1, 2, 4, 3))
    bias = op.bias(2, source, weights, filters.shape[4])
    images, frames = _images(op, source, len(filters))
    result = op.emit(OperationCode.CONV_2D, [images, weights, bias, *convolution_window(op)])
    op.result(op.reshape(result, ((source.shape or ())[0], frames, *(result.shape or ())[1:])))


@converts(BuiltinOperator.CONV_3D_TRANSPOSE, inputs=4)
def _conv_3d_transpose(op: Operator) -> None:
    """(output shape, filter [taps, height, width, depth_out, depth_in], input, bias).

    Of frames of the result that are a stride apart each is met by the same taps: one TRANSPOSE_CONV_2D, as in CONV_3D.
    """
    source, shape = _volume(op, 2), op.by_dimension(0, "output_shape")
    filters = _filters(op, source, depth_axis=4)
    bias = op.bias(3, source, op.input(1, "filter"), filters.shape[3])
    stride, before = _transposed_frames(op, source, shape, len(filters))
    count = -(-shape[1] // stride)
    phases = []
    for phase in range(stride):
        images, met = _meeting_images(op, source, len(filters), phase + before, count)
        weights = dilated_filter(op, _side_by_side(filters[met]), (1, 2))
        images_shape = [shape[0] * count, *shape[2:]]
        result = transposed_convolution(op, images, weights, bias, images_shape)
        phases.append(op.reshape(result, (shape[0] * count, 1, math.prod(shape[2:]))))
    frames = phases[0] if stride == 1 else op.emit(OperationCode.CONCATENATION, [*phases, int32(1)], source)
    whole = op.reshape(frames, (shape[0], count * stride, *shape[2:]))
    op.result(_frames(op, whole, 0, 1, shape[1]))


def _volume(op: Operator, position: int) -> Value:
    source = op.input(position, "input", rank=5)
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"input (input {position}) must be FLOAT32, got {OperandCode(source.type).name}")
    return source


def _filters(op: Operator, source: Value, depth_axis: int) -> Array:
    """Return the filters of a volume, in the order of the file."""
    filters = op.matched(op.input(1, "filter", rank=5), source).data
    if filters is None:
        op.fail("filter (input 1) must be a constant")
    depth = (source.shape or ())[-1]
    if filters.shape[depth_axis] != depth or len(filters) > _MAX_TAPS or 0 in filters.shape:
        wanted = f"1 to {_MAX_TAPS} taps and depth_in {depth}"
        op.fail(f"filter (input 1) must have {wanted}, got {list(filters.shape)}")
    op.spend(filters.size)
    return filters


def _side_by_side(filters: Array) -> Value:
    """Return filters [taps, height, width, depth_out, depth_in] as [depth_out, height, width, taps * depth_in]."""
    taps, height, width, depth_out, depth_in = filters.shape
    return constant(filters.transpose(3, 1, 2, 0, 4).reshape(depth_out, height, width, taps * depth_in))


def _transposed_frames(op: Operator, source: Value, shape: Sequence[int], taps: int) -> tuple[int, int]:
    """Return the stride along the frames, and how many frames before the result's first the products begin."""
    batches, frames = (source.shape or ())[:2]
    stride, dilation = op.option("stride_d"), op.option("dilation_d_factor")
    if not 1 <= stride <= _MAX_TAPS or dilation < 1:
        op.fail(f"stride_d must be 1 to {_MAX_TAPS}, dilation_d_factor > 0, got {stride} and {dilation}")
    if len(shape) != 5 or min(shape) < 1 or shape[0] != batches:
        op.fail(f"output_shape (input 0) must be {batches} volumes of 4 sizes > 0, got {list(shape)}")
    reach, is_same = (taps - 1) * dilation + 1, op.option("padding") == 0
    met = -(-shape[1] // stride) if is_same else (shape[1] - reach) // stride + 1
    if met != frames:
        op.fail(f"output_shape (input 0) must have as many frames as {frames} become, got {shape[1]}")
    return stride, max(0, (frames - 1) * stride + reach - shape[1]) // 2 if is_same else 0


def _meeting_images(op: Operator, source: Value, taps: int, first: int, count: int) -> tuple[Value, list[int]]:
    """Return images [batches * count, height, width, met * depth_in] for frames from `first` on, and the taps met."""
    batches, size, *image = source.shape or ()
    stride, dilation = op.option("stride_d"), op.option("dilation_d_factor")
    met = [tap for tap in range(taps) if (first - tap * dilation) % stride == 0]
    if not met:  # of fewer taps than a stride has frames
        zeros = replace(source, shape=(batches * count, *image))
        return op.zeros_like(zeros), [0]
    begins = [(first - tap * dilation) // stride for tap in met]
    before, after = max(0, -min(begins)), max(0, max(begins) + count - size)
    if before or after:
        paddings = np.array([[0, 0], [before, after], *[[0, 0]] * 3], np.int32)
        source = op.emit(OperationCode.PAD, [source, constant(paddings)], source)
    images = [op.reshape(_frames(op, source, begin + before, 1, count), (batches * count, *image)) for begin in begins]
    return images[0] if len(met) == 1 else op.emit(OperationCode.CONCATENATION, [*images, int32(3)], source), met


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
