# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: first over the rows of every window, then over its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import clamp_activation, from_nhwc, to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.pooling import pooling_geometry
from nn_runtime.quantization import activation_range_quantized

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView
    from nn_runtime.operations.sliding_window import SlidingWindow

_HEIGHT_AXIS, _WIDTH_AXIS = 1, 2


@computes(OperationCode.AVERAGE_POOL_2D)
def average_pool_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the mean of the pixels in each window, padding not counted; 8-bit means round half away from 0."""
    window = pooling_geometry(op)
    quantized = op.data_type in QUANT8_TYPES
    image = to_nhwc(op.array("input"), window.nchw).astype(np.int32 if quantized else np.float32, copy=False)
    sums = _pool(np.add, image, 0, window)
    counts = _counts(window)
    if not quantized:
        sums /= counts.astype(np.float32)
        return (_finish(op, window, sums),)
    # Round the magnitude: the integer division of negative sums must truncate.
    magnitudes = (np.abs(sums) + counts // 2) // counts
    return (_finish(op, window, np.where(sums < 0, -magnitudes, magnitudes)),)


@computes(OperationCode.MAX_POOL_2D)
def max_pool_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the greatest pixel of each window."""
    window = pooling_geometry(op)
    image = to_nhwc(op.array("input"), window.nchw)
    least = np.iinfo(image.dtype).min if op.data_type in QUANT8_TYPES else -np.inf
    return (_finish(op, window, _pool(np.maximum, image, least, window)),)


@computes(OperationCode.L2_POOL_2D)
def l2_pool_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the root of the mean square of the pixels in each window, padding not counted."""
    window = pooling_geometry(op)
    image = to_nhwc(op.array("input"), window.nchw).astype(np.float32, copy=False)
    means = _pool(np.add, image * image, 0, window)
    means /= _counts(window).astype(np.float32)
    return (_finish(op, window, np.sqrt(means, out=means)),)


def _finish(op: OperationView, window: SlidingWindow, values: Array) -> Array:
    output = op.outputs[0]
    if output.type in QUANT8_TYPES:
        low, high = activation_range_quantized(window.activation, output)
        np.clip(values, low, high, out=values)
    else:
        clamp_activation(values, window.activation)
    return from_nhwc(values.astype(dtype_of(output.type), copy=False), window.nchw)


def _pool(combine: np.ufunc, image: Array, identity: float, window: SlidingWindow) -> Array:
    """Return the combination of the pixels of every window [batches, output_height, output_width, depth]."""
    rows = (window.filter_height, window.stride_height, window.padding_top, window.output_height)
    columns = (window.filter_width, window.stride_width, window.padding_left, window.output_width)
    strips = _combine(combine, image, identity, _HEIGHT_AXIS, rows)
    return _combine(combine, strips, identity, _WIDTH_AXIS, columns)


def _combine(combine: np.ufunc, image: Array, identity: float, axis: int, sizes: tuple[int, int, int, int]) -> Array:
    """Combine windows along one axis; sizes are those of filter, stride, padding before, and output."""
    filter_size, stride, padding, outputs = sizes
    if outputs <= filter_size:  # window by window, else tap by tap
        starts = [at * stride - padding for at in range(outputs)]
        windows = (image[_along(axis, slice(max(0, at), max(0, at + filter_size)))] for at in starts)
        parts = [combine.reduce(one, axis, image.dtype, keepdims=True, initial=identity) for one in windows]
        return np.concatenate(parts, axis)
    reach = (outputs - 1) * stride + 1
    around = [(0, 0)] * image.ndim
    around[axis] = padding, max(0, reach + filter_size - 1 - padding - image.shape[axis])
    padded = np.pad(image, around, constant_values=identity) if any(around[axis]) else image
    result: Array = padded[_along(axis, slice(0, reach, stride))].copy()
    for tap in range(1, filter_size):
        combine(result, padded[_along(axis, slice(tap, tap + reach, stride))], out=result)
    return result


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


def _counts(window: SlidingWindow) -> Array:
    """Return how many input pixels each window holds [output_height, output_width, 1]."""
    top = np.arange(window.output_height) * window.stride_height - window.padding_top
    left = np.arange(window.output_width) * window.stride_width - window.padding_left
    heights = np.minimum(top + window.filter_height, window.input_height) - np.maximum(top, 0)
    widths = np.minimum(left + window.filter_width, window.input_width) - np.maximum(left, 0)
    counts: Array = heights[:, np.newaxis, np.newaxis] * widths[:, np.newaxis]
    return counts
