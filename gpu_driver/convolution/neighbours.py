# SPDX-License-Identifier: Apache-2.0
"""Convolutions that make few channels, as such that make the channels of several neighbours, on CPU-type devices.

Vectors have a channel a lane, and three channels, as the last layer of a network that makes pictures has, leave
thirteen of sixteen empty. Neighbours in a row read almost the same columns. So the filter is put side by side as often
as they fit into a vector, each copy a stride further, with zeros around it: a wider filter that moves by as many
strides, and the same bytes in memory. An infinity that a copy only reads with a weight of 0 makes its pixel NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.convolution.packing import CHANNEL_BLOCK

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.convolution.product import Product
    from nn_runtime.operand import Array
    from nn_runtime.operations.conv import Convolution

_WORTHWHILE = 0.75
"""Part of the work that may be left: elements that follow are no part of the step, as their rows are others."""


def with_full_lanes(product: Product) -> Product:
    """Return a convolution with constant weights as one for as many neighbours as are worth it, or as it is."""
    g = product.geometry
    count = min(_counts(g), key=lambda count: _columns(g, count) / count)
    if _columns(g, count) > _WORTHWHILE * count * g.filter_width:
        return product
    return replace(
        product,
        weights=_side_by_side(product.weights, g, count),
        bias=repeated_bias(product.bias, count),
        part_of=None if product.part_of is None else repeated_filters(product.part_of, count),
        own_terms=product.terms,
        geometry=replace(
            g,
            output_width=g.output_width // count,
            output_depth=g.output_depth * count,
            filter_width=_columns(g, count),
            stride_width=g.stride_width * count,
            dilation_width=1,
        ),
    )


def _counts(geometry: Convolution) -> list[int]:
    """Return how many neighbours can be one pixel."""
    g = geometry
    return [n for n in range(1, max(1, CHANNEL_BLOCK // g.output_depth) + 1) if g.output_width % n == 0]


def _columns(geometry: Convolution, count: int) -> int:
    """Return the columns that so many neighbours read."""
    g = geometry
    return g.filter_width if count == 1 else (count - 1) * g.stride_width + (g.filter_width - 1) * g.dilation_width + 1


def _side_by_side(weights: BoundOperand, geometry: Convolution, count: int) -> BoundOperand:
    """Return weights [count * output_depth, filter_height, columns, input_depth]."""
    g, data = geometry, weights.data.reshape(weights.dimensions)
    shape = count, g.output_depth, g.filter_height, _columns(g, count), g.input_depth
    filters = np.full(shape, weights.zero_point, data.dtype)
    for one in range(count):
        first = one * g.stride_width
        filters[one, :, :, first : first + (g.filter_width - 1) * g.dilation_width + 1 : g.dilation_width] = data
    return repeated_channels(weights, filters.reshape(-1, *shape[2:]), count)


def repeated_channels(weights: BoundOperand, filters: Array, count: int) -> BoundOperand:
    """Return filters [count * depth, ...] made of weights, all of whose channels are there so many times."""
    quant = weights.channel_quant
    repeated = None if quant is None else replace(quant, scales=quant.scales * count)
    return replace(weights, constant=filters, dimensions=filters.shape, channel_quant=repeated)


def repeated_filters(weights: BoundOperand, count: int) -> BoundOperand:
    """Return weights whose channels are there so many times."""
    return repeated_channels(weights, np.tile(weights.data.reshape(weights.dimensions), (count, 1, 1, 1)), count)


def repeated_bias(bias: BoundOperand, count: int) -> BoundOperand:
    """Return the bias of channels that are there so many times."""
    data = np.tile(bias.data, count)
    return replace(bias, constant=data, dimensions=data.shape)
