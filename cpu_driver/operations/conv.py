# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D: matrix products over image columns, and one multiply-add per filter tap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import (
    centred,
    centred_bound,
    exact_depth,
    finish_convolution,
    product,
    to_nhwc,
)
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.conv import Convolution, convolution_geometry

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView
    from nn_runtime.operations.sliding_window import SlidingWindow

_COLUMNS_ELEMENTS = 1 << 21
"""Greatest size of the column matrix of one product."""
_TILE_ELEMENTS = 1 << 15
"""Output elements of a depthwise convolution computed at a time, so that they stay in the cache."""


@computes(OperationCode.CONV_2D)
def conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the convolution with bias and activation; 8-bit sums are exact."""
    geometry = convolution_geometry(op)
    filters = op.array("filter").reshape(geometry.output_depth, -1)
    image = to_nhwc(op.array("input"), geometry.nchw)
    if op.data_type not in QUANT8_TYPES:
        image, filters = image.astype(np.float32, copy=False), filters.astype(np.float32, copy=False)
        return (_finish(op, geometry, _convolve(image, filters, geometry, filters.shape[1])),)
    source, weights = op.input("input"), op.input("filter")
    filters = centred(filters, weights)
    depth_limit = exact_depth(centred_bound(source), filters, centred_bound(weights))
    return (_finish(op, geometry, _convolve(centred(image, source), filters, geometry, depth_limit)),)


@computes(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the convolution of each channel with bias and activation; 8-bit sums are exact."""
    geometry = convolution_geometry(op)
    weights = op.array("filter")[0]
    image = to_nhwc(op.array("input"), geometry.nchw)
    if op.data_type not in QUANT8_TYPES:
        sums = _depthwise(image.astype(np.float32, copy=False), weights.astype(np.float32, copy=False), geometry)
        return (_finish(op, geometry, sums),)
    source, filter_operand = op.input("input"), op.input("filter")
    taps = geometry.filter_height * geometry.filter_width
    exact = taps * centred_bound(source) * centred_bound(filter_operand) < 2**24
    dtype = np.float32 if exact else np.float64
    sums = _depthwise(centred(image, source, dtype), centred(weights, filter_operand, dtype), geometry)
    return (_finish(op, geometry, sums),)


def _finish(op: OperationView, geometry: Convolution, sums: Array) -> Array:
    return finish_convolution(op, sums, geometry.activation, geometry.nchw)


def _convolve(image: Array, filters: Array, geometry: Convolution, depth_limit: int) -> Array:
    """Return sums [batches, output_height, output_width, output_depth]; filters [output_depth, taps * input_depth]."""
    shape = (geometry.batches, geometry.output_height, geometry.output_width, geometry.output_depth)
    if geometry.pointwise:
        pixels = image[:, :: geometry.stride_height, :: geometry.stride_width]
        return product(pixels.reshape(-1, geometry.input_depth), filters, depth_limit).reshape(shape)
    padded = pad_image(image, geometry)
    parts = [product(columns, filters, depth_limit) for columns in _columns(padded, geometry)]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).reshape(shape)


def _columns(image: Array, geometry: Convolution) -> Iterator[Array]:
    """Yield matrices [pixels, filter_height * filter_width * input_depth] of a padded image, whole output rows each."""
    windows = _windows(image, geometry)
    batches, height, width, *taps = windows.shape
    depth = int(np.prod(taps))
    step = max(1, _COLUMNS_ELEMENTS // (width * depth))
    if batches * height <= step:
        yield windows.reshape(-1, depth)
        return
    for batch in range(batches):
        for row in range(0, height, step):
            yield windows[batch, row : row + step].reshape(-1, depth)


def _windows(image: Array, geometry: Convolution) -> Array:
    """Return a view [batches, output_height, output_width, filter_height, filter_width, depth] of a padded image."""
    batch, row, column, channel = image.strides
    shape = (
        geometry.batches,
        geometry.output_height,
        geometry.output_width,
        geometry.filter_height,
        geometry.filter_width,
        geometry.input_depth,
    )
    strides = (
        batch,
        row * geometry.stride_height,
        column * geometry.stride_width,
        row * geometry.dilation_height,
        column * geometry.dilation_width,
        channel,
    )
    return np.lib.stride_tricks.as_strided(image, shape, strides, writeable=False)


def pad_image(image: Array, geometry: SlidingWindow) -> Array:
    """Return an image [batches, height, width, depth] with its padding of zeros."""
    if not geometry.padded:
        return image
    batches, height, width, depth = image.shape
    top, left = geometry.padding_top, geometry.padding_left
    padded_shape = (batches, height + top + geometry.padding_bottom, width + left + geometry.padding_right, depth)
    padded = np.zeros(padded_shape, image.dtype)
    padded[:, top : top + height, left : left + width] = image
    return padded


def _depthwise(image: Array, weights: Array, geometry: Convolution) -> npt.NDArray[np.floating]:
    """Return sums [batches, output_height, output_width, output_depth]; weights [filter_height, filter_width, same]."""
    if geometry.depth_multiplier > 1:
        image = np.repeat(image, geometry.depth_multiplier, axis=3)
    padded = pad_image(image, geometry)
    height, width, depth = geometry.output_height, geometry.output_width, geometry.output_depth
    sums = np.empty((geometry.batches, height, width, depth), image.dtype)
    step = max(1, _TILE_ELEMENTS // (width * depth))
    scratch = np.empty((min(step, height), width, depth), image.dtype)
    for batch in range(geometry.batches):
        for row in range(0, height, step):
            _depthwise_rows(padded[batch], weights, geometry, row, sums[batch, row : row + step], scratch)
    return sums


def _depthwise_rows(
    image: Array, weights: Array, geometry: Convolution, first_row: int, sums: Array, scratch: Array
) -> None:
    """Write the sums of some output rows, from `first_row` on; `scratch` has at least their size."""
    rows, width, _depth = sums.shape
    for tap_row in range(geometry.filter_height):
        top = first_row * geometry.stride_height + tap_row * geometry.dilation_height
        source = image[top : top + (rows - 1) * geometry.stride_height + 1 : geometry.stride_height]
        for tap in range(geometry.filter_width):
            left = tap * geometry.dilation_width
            pixels = source[:, left : left + (width - 1) * geometry.stride_width + 1 : geometry.stride_width]
            if tap_row == tap == 0:
                np.multiply(pixels, weights[0, 0], out=sums)
            else:
                sums += np.multiply(pixels, weights[tap_row, tap], out=scratch[:rows])
