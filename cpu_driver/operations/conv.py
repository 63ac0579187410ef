# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D: matrix products over image columns, and sums of products over filter taps.

Both work through tiles of output rows that stay in the cache from the padded input to the finished result. 8-bit inputs
are multiplied as they are stored: their zero point is taken away with the bias.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.kept import kept
from cpu_driver.operations import computes
from cpu_driver.operations.products import (
    centred,
    centred_bound,
    code_bound,
    convolution_end,
    exact_depth,
    float_type,
    from_nhwc,
    product,
    to_nhwc,
)
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.conv import Convolution, convolution_geometry
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView
    from nn_runtime.operations.sliding_window import SlidingWindow

    Place = tuple[slice, slice, slice]
    """All images, rows and columns of them."""

_COLUMNS_ELEMENTS = 1 << 19
"""Greatest number of elements of columns and results in a tile of a product."""
_TILE_ELEMENTS = 1 << 18
"""Greatest number of results in a tile of a depthwise convolution."""
_ALL = slice(None)


@dataclass(frozen=True)
class _Plane:
    """Columns of the input that a tile reads, a stride apart.

    They lie at `inside` of arrays of `shape`, one for each image; what lies around them, at `borders`, is padding.
    """

    columns: slice
    shape: tuple[int, int, int]
    inside: Place
    borders: tuple[Place, ...]


@dataclass(frozen=True)
class _Tile:
    """Rows of the outputs of some images, and the rows of the inputs that they read, in planes."""

    images: slice
    output: slice
    input: slice
    planes: tuple[_Plane, ...]


@dataclass(frozen=True)
class _Weights:
    """What a convolution makes of its constants, whatever the size of its input.

    Filters: [output_depth, taps * input_depth]; or those of each tap [height, width, output_depth].
    """

    filters: Array
    zero_point: int
    """What the input is padded with."""
    depth_limit: int
    """Terms whose sum is exact in float32."""
    end: Callable[[Array, Array], object]
    """Writes the results of sums."""


@dataclass(frozen=True)
class _Layer:
    """A convolution made ready for a size of its input.

    Filters as `_Weights` has them; or those of each tap for a row of results [height, width, row].
    """

    geometry: Convolution
    weights: _Weights
    filters: Array
    tiles: tuple[_Tile, ...]


@computes(OperationCode.CONV_2D)
def conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the convolution with bias and activation; 8-bit sums are exact."""
    return (_convolution(op, kept(op, _product_layer), _product_rows),)


@computes(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(op: OperationView) -> tuple[Array, ...]:
    """Return the convolution of each channel with bias and activation; 8-bit sums are exact."""
    return (_convolution(op, kept(op, _depthwise_layer), _depthwise_rows),)


def _product_layer(op: OperationView) -> _Layer:
    g = convolution_geometry(op)
    if g.pointwise and (g.stride_height, g.stride_width) == (1, 1) and not g.nchw:  # any pixels make a tile
        pixels = g.batches * g.input_height * g.input_width
        g = replace(g, batches=1, input_height=pixels, input_width=1, output_height=pixels, output_width=1)
    weights = kept(op, _product_weights, sized=False)
    row_elements = g.output_width * sum(weights.filters.shape)
    return _Layer(g, weights, weights.filters, _tiles(g, row_elements, _COLUMNS_ELEMENTS, (0,), 1))


def _product_weights(op: OperationView) -> _Weights:
    filters, activation = op.array("filter"), op.fuse_code()
    filters = filters.reshape(len(filters), -1)
    if op.data_type not in QUANT8_TYPES:
        filters = filters.astype(np.float32, copy=False)
        return _Weights(filters, 0, filters.shape[1], convolution_end(op, activation))
    source, weights = op.input("input"), op.input("filter")
    filters = centred(filters, weights)
    depth_limit = exact_depth(code_bound(source), filters, centred_bound(weights))
    return _Weights(filters, source.zero_point, depth_limit, convolution_end(op, activation, filters.T))


def _depthwise_layer(op: OperationView) -> _Layer:
    g = convolution_geometry(op)
    weights = kept(op, _depthwise_weights, sized=False)
    rows = np.tile(weights.filters, g.output_width)  # numpy is slow with short rows
    phases = [tap * g.dilation_width % g.stride_width for tap in range(min(_taps_apart(g), g.filter_width))]
    tiles = _tiles(g, g.output_width * g.output_depth, _TILE_ELEMENTS, phases, g.stride_width)
    return _Layer(g, weights, rows, tiles)


def _depthwise_weights(op: OperationView) -> _Weights:
    taps, source, weights = op.array("filter")[0], op.input("input"), op.input("filter")
    height, width, depth = taps.shape
    zero_point = 0
    if op.data_type in QUANT8_TYPES:
        bound = height * width * code_bound(source) * centred_bound(weights)
        taps, zero_point = centred(taps, weights, float_type(bound)), source.zero_point
    else:
        taps = taps.astype(np.float32, copy=False)
    return _Weights(taps, zero_point, 0, convolution_end(op, op.fuse_code(), taps.reshape(-1, depth)))


def _tiles(
    geometry: Convolution, row_elements: int, greatest: int, phases: Sequence[int], stride: int
) -> tuple[_Tile, ...]:
    """Return tiles of at most `greatest` elements, or of one row, with a plane of columns from each phase on."""
    g, step = geometry, max(1, greatest // row_elements)
    images = _pieces(g.batches, max(1, step // g.output_height))
    places = itertools.product(images, _pieces(g.output_height, step))
    return tuple(_tile(g, some, rows, phases, stride) for some, rows in places)


def _pieces(count: int, most: int) -> list[slice]:
    """Cut a range into pieces of at most so many."""
    return [slice(first, min(first + most, count)) for first in range(0, count, most)]


def _tile(geometry: Convolution, images: slice, output: slice, phases: Sequence[int], stride: int) -> _Tile:
    g, first, last = geometry, output.start, output.stop
    top = first * g.stride_height - g.padding_top
    bottom = (last - 1) * g.stride_height - g.padding_top + (g.filter_height - 1) * g.dilation_height + 1
    rows = slice(min(max(top, 0), g.input_height), min(max(bottom, 0), g.input_height))
    above = max(-top, 0)
    inside = slice(above, above + rows.stop - rows.start)
    planes = tuple(_plane(g, bottom - top, inside, phase, stride) for phase in phases)
    return _Tile(images, output, rows, planes)


def _plane(geometry: Convolution, height: int, rows: slice, phase: int, stride: int) -> _Plane:
    g = geometry
    right = g.padding_left + g.input_width
    ends = (g.padding_left, right, right + g.padding_right)
    first, last, width = (max(0, -((phase - end) // stride)) for end in ends)
    left = first * stride + phase - g.padding_left
    around = (
        (slice(0, rows.start), slice(0, width)),
        (slice(rows.stop, height), slice(0, width)),
        (rows, slice(0, first)),
        (rows, slice(last, width)),
    )
    borders = tuple((_ALL, *place) for place in around if all(part.stop > part.start for part in place))
    columns = slice(left, left + (last - first) * stride, stride)
    return _Plane(columns, (height, width, g.input_depth), (_ALL, rows, slice(first, last)), borders)


def _convolution(
    op: OperationView, layer: _Layer, sums_of: Callable[[_Layer, Sequence[Array], int, Array | None], Array]
) -> Array:
    """Return the results, made tile by tile from the sums of each."""
    g, output = layer.geometry, dtype_of(op.outputs[0].type)
    image = to_nhwc(op.array("input"), g.nchw).reshape(g.batches, g.input_height, g.input_width, g.input_depth)
    results = np.empty((g.batches, g.output_height, g.output_width, g.output_depth), output)
    for tile in layer.tiles:
        place = results[tile.images, tile.output]
        planes = [_pixels(image, layer, tile, plane) for plane in tile.planes]
        layer.weights.end(sums_of(layer, planes, place.shape[1], place if output == np.float32 else None), place)
    return from_nhwc(results, g.nchw)


def _pixels(image: Array, layer: _Layer, tile: _Tile, plane: _Plane) -> Array:
    """Return a plane [images, height, width, depth] of what a tile reads, in the type of the filters."""
    pixels = image[tile.images, tile.input, plane.columns]
    if not plane.borders:
        return np.ascontiguousarray(pixels, layer.filters.dtype)
    padded = np.empty((len(pixels), *plane.shape), layer.filters.dtype)
    padded[plane.inside] = pixels
    for border in plane.borders:
        padded[border] = layer.weights.zero_point
    return padded


def _product_rows(layer: _Layer, planes: Sequence[Array], count: int, out: Array | None) -> Array:
    """Return the sums [images, count, output_width, output_depth] of `count` output rows, in `out` if they fit it."""
    g, filters, rows = layer.geometry, layer.filters, planes[0]
    columns = rows[:, :: g.stride_height, :: g.stride_width] if g.pointwise else _windows(rows, g, count)
    target = None if out is None else out.reshape(-1, g.output_depth)
    sums = product(columns.reshape(-1, filters.shape[1]), filters, layer.weights.depth_limit, target)
    return sums.reshape(-1, count, g.output_width, g.output_depth) if out is None else out


def _windows(rows: Array, geometry: Convolution, count: int) -> Array:
    """Return a view [images, count, output_width, filter_height, filter_width, depth] of the rows."""
    image, row, column, channel = rows.strides
    taps = geometry.filter_height, geometry.filter_width, geometry.input_depth
    shape = len(rows), count, geometry.output_width, *taps
    strides = (
        image,
        row * geometry.stride_height,
        column * geometry.stride_width,
        row * geometry.dilation_height,
        column * geometry.dilation_width,
        channel,
    )
    return np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False)


def _depthwise_rows(layer: _Layer, planes: Sequence[Array], count: int, out: Array | None) -> Array:
    """Return the sums [images, count, output_width, output_depth] of `count` output rows, in `out` if it is given."""
    g, apart = layer.geometry, _taps_apart(layer.geometry)
    shape = len(planes[0]), count, g.output_width, g.output_depth
    sums = np.empty(shape, layer.filters.dtype) if out is None else out
    flat = sums.reshape(*shape[:2], -1)
    for tap, plane in enumerate(planes):
        columns = np.repeat(plane, g.depth_multiplier, axis=3) if g.depth_multiplier > 1 else plane
        left, step = tap * g.dilation_width // g.stride_width, apart * g.dilation_width // g.stride_width
        filters = layer.filters[:, tap::apart]
        pixels = _tap_rows(columns, g, count, left, step, filters.shape[1])
        if tap == 0:
            np.einsum("iyhwx,hwx->iyx", pixels, filters, out=flat)
        else:
            flat += np.einsum("iyhwx,hwx->iyx", pixels, filters)
    return sums


def _taps_apart(geometry: Convolution) -> int:
    """Return how far apart taps of a row are that read the same columns, counted in strides."""
    return geometry.stride_width // math.gcd(geometry.stride_width, geometry.dilation_width)


def _tap_rows(columns: Array, geometry: Convolution, count: int, left: int, step: int, taps: int) -> Array:
    """Return a view [images, count, filter_height, taps, output_width * depth] of columns `step` apart, from `left`."""
    image, row, column = columns.strides[:3]
    shape = (len(columns), count, geometry.filter_height, taps, geometry.output_width * geometry.output_depth)
    strides = (image, row * geometry.stride_height, row * geometry.dilation_height, column * step, columns.itemsize)
    pixels: Array = np.ndarray(shape, columns.dtype, columns, left * column, strides)
    return pixels


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
