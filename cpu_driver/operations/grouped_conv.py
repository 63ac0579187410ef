# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D: for each filter tap one matrix product per group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.conv import pad_image
from cpu_driver.operations.products import finish_convolution, float_operands, to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operations.grouped_conv import GroupedConvolution, grouped_convolution

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the convolution of each group with bias and activation; 8-bit sums are exact."""
    geometry = grouped_convolution(op)
    image, filters = float_operands(op, geometry.filter_height * geometry.filter_width * op.dimensions("filter")[3])
    sums = _convolve(pad_image(to_nhwc(image, geometry.nchw), geometry), filters, geometry)
    return (finish_convolution(op, sums, geometry.activation, geometry.nchw),)


def _convolve(image: Array, filters: Array, geometry: GroupedConvolution) -> Array:
    """Return sums [batches, output_height, output_width, output_depth] of a padded image."""
    height, width, groups = geometry.output_height, geometry.output_width, geometry.groups
    # [filter_height, filter_width, groups, group's input depth, group's output depth]
    taps = filters.reshape(groups, -1, *filters.shape[1:]).transpose(2, 3, 0, 4, 1)
    sums = np.zeros((groups, geometry.batches * height * width, taps.shape[4]), image.dtype)
    for row in range(geometry.filter_height):
        for column in range(geometry.filter_width):
            pixels = image[
                :,
                row : row + (height - 1) * geometry.stride_height + 1 : geometry.stride_height,
                column : column + (width - 1) * geometry.stride_width + 1 : geometry.stride_width,
            ]
            sums += np.matmul(pixels.reshape(-1, groups, taps.shape[3]).transpose(1, 0, 2), taps[row, column])
    joined: Array = sums.transpose(1, 0, 2).reshape(geometry.batches, height, width, geometry.output_depth)
    return joined
