# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV_2D: for each filter tap one matrix product, added to its places in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import finish_convolution, float_operands, to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operations.transpose_conv import TransposeConvolution, transpose_convolution

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return every input pixel spread over its window of the output, with bias and activation; 8-bit sums are exact."""
    geometry = transpose_convolution(op)
    image, filters = float_operands(op, geometry.filter_height * geometry.filter_width * geometry.input_depth)
    sums = _spread(to_nhwc(image, geometry.nchw), filters, geometry)
    return (finish_convolution(op, sums, geometry.activation, geometry.nchw),)


def _spread(image: Array, filters: Array, geometry: TransposeConvolution) -> Array:
    """Return sums [batches, output_height, output_width, output_depth]."""
    reach_height = (geometry.input_height - 1) * geometry.stride_height + 1
    reach_width = (geometry.input_width - 1) * geometry.stride_width + 1
    bottom, right = geometry.padding_top + geometry.output_height, geometry.padding_left + geometry.output_width
    canvas_height = max(bottom, reach_height + geometry.filter_height - 1)
    canvas_width = max(right, reach_width + geometry.filter_width - 1)
    pixels = image.reshape(-1, geometry.input_depth)
    taps = np.ascontiguousarray(filters.transpose(1, 2, 3, 0))
    canvas = np.zeros((geometry.batches, canvas_height, canvas_width, geometry.output_depth), image.dtype)
    for row in range(geometry.filter_height):
        for column in range(geometry.filter_width):
            places = canvas[
                :,
                row : row + reach_height : geometry.stride_height,
                column : column + reach_width : geometry.stride_width,
            ]
            places += (pixels @ taps[row, column]).reshape(places.shape)
    return np.ascontiguousarray(canvas[:, geometry.padding_top : bottom, geometry.padding_left : right])
