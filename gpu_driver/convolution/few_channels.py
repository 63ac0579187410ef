# SPDX-License-Identifier: Apache-2.0
"""Convolutions of one to four input channels on GPU-type devices, as the first layers of networks are.

A product of matrices brings such inputs one at a time, since so few of them are neighbours; conv_2d_few_channels.cl
keeps the inputs of a tile of the output in local memory as they lie in the image.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import Kernel, Packed, int_vector
from gpu_driver.launch import Launch
from gpu_driver.splits.vectors import c_type
from nn_runtime.codes import OperandCode
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.convolution.product import Product
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Scalar
    from nn_runtime.operations.conv import Convolution

_MOST_DEPTH, _MOST_TERMS = 4, 256
"""More channels are vectors for a product of matrices; more products of bytes may not be exact in a float."""
_LEAST_PIXELS = 2048
"""Fewer are not enough groups for a GPU."""
_TILE_PIXELS, _LEAST_WIDTH = (256, 128), 16
"""Of a group's tile, the larger where its inputs fit into local memory."""
_STRIPS = 8, 4
"""STRIP of the kernel, the better first."""
_LANE_CHANNELS, _MOST_LANES = 8, 4
_QUAD = 4
_CHANNEL_BYTES = 24
"""Of what becomes of a channel's sums."""
_MOST_INPUTS = 64
"""That a work-item keeps in registers: what its strip needs of a line."""
_LOCAL_BYTES = 49152
"""More local memory leaves a compute unit few groups."""
_MOST_GROUPS = 65535
"""What NVIDIA's GPUs count in each dimension of a launch but the first."""


@dataclass(frozen=True)
class Tile:
    """A group's part of the output: `lines` of `strips` of `strip` pixels, `lanes` times eight channels."""

    strip: int
    strips: int
    lines: int
    lanes: int

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return self.lanes * self.strips * self.lines

    @property
    def channels(self) -> int:
        """Output channels of a group."""
        return _LANE_CHANNELS * self.lanes

    def counts(self, geometry: Convolution) -> tuple[int, int]:
        """Return how many tiles there are side by side, and one below the other."""
        return -(-geometry.output_width // (self.strip * self.strips)), -(-geometry.output_height // self.lines)

    def inputs(self, geometry: Convolution) -> int:
        """Return how many inputs of a line a work-item keeps in registers."""
        return _QUAD * _quads_across(self.strip, geometry)

    def local_bytes(self, geometry: Convolution) -> int:
        """Return the local memory of a group: inputs, weights, and what becomes of a channel's sums."""
        g = geometry
        lines = (self.lines - 1) * g.stride_height + (g.filter_height - 1) * g.dilation_height + 1
        staged = lines * _quads_across(self.strip * self.strips, g)
        return 16 * staged + (_CHANNEL_BYTES + 4 * _terms(g)) * self.channels


def few_channels_launch(product: Product, device: DeviceProfile) -> Launch | None:
    """Return the launch of conv_2d_few_channels.cl, None if it does not fit or the output is small."""
    if not fits_few_channels(product, device):
        return None
    tile = tile_of(product.geometry, device)
    return None if tile is None else _launch(product, tile)


def fits_few_channels(product: Product, device: DeviceProfile) -> bool:
    """Tell whether conv_2d_few_channels.cl applies: NHWC, few channels, many pixels; a GPU, no groups that stay."""
    g = product.geometry
    return (
        not device.is_cpu
        and not (g.depthwise or g.nchw)
        and product.groups == 1
        and product.residual is None
        and g.input_depth <= _MOST_DEPTH
        and _terms(g) <= _MOST_TERMS
        and g.batches * g.output_height * g.output_width >= _LEAST_PIXELS
        and max(g.batches, g.output_height) <= _MOST_GROUPS
        and not device.suits_persistence(product.flops, product.bytes_moved)
    )


def tile_of(geometry: Convolution, device: DeviceProfile) -> Tile | None:
    """Return the tile of which fewest make up the output; None if none fits, or less than half of them is output."""
    pixels = geometry.output_height * geometry.output_width
    lanes = next((lanes for lanes in (1, 2) if geometry.output_depth <= lanes * _LANE_CHANNELS), _MOST_LANES)
    for size in _TILE_PIXELS:
        found = [tile for tile in _tiles(size, lanes) if _fits(tile, geometry, device)]
        if found:
            tile = min(found, key=lambda one: prod(one.counts(geometry)))
            return tile if prod(tile.counts(geometry)) * size <= 2 * pixels else None
    return None


def _tiles(pixels: int, lanes: int) -> list[Tile]:
    widths = [_LEAST_WIDTH << i for i in range((pixels // _LEAST_WIDTH).bit_length())]
    return [Tile(strip, width // strip, pixels // width, lanes) for strip in _STRIPS for width in widths]


def _fits(tile: Tile, geometry: Convolution, device: DeviceProfile) -> bool:
    return (
        tile.items <= min(device.max_work_group_size, device.max_work_item_sizes[0])
        and tile.inputs(geometry) <= _MOST_INPUTS
        and tile.local_bytes(geometry) <= min(device.local_mem_bytes, _LOCAL_BYTES)
    )


def _quads_across(pixels: int, g: Convolution) -> int:
    """Return how many quads of inputs of a line so many neighbours of the output need."""
    across = (pixels - 1) * g.stride_width + (g.filter_width - 1) * g.dilation_width + 1
    return -(-across * g.input_depth // _QUAD)


def _terms(g: Convolution) -> int:
    return g.filter_height * g.filter_width * g.input_depth


def _launch(product: Product, tile: Tile) -> Launch:
    g = product.geometry
    blocks = -(-g.output_depth // tile.channels)
    across, down = tile.counts(g)
    run = 4 if product.source.type == OperandCode.TENSOR_FLOAT32 else 8
    of_source = g.input_width * g.input_depth % _QUAD == 0 and g.padding_left * g.input_depth % _QUAD == 0
    scaling: tuple[Argument, ...] = ()
    zeros: tuple[Scalar, ...] = ()
    if product.quantized:
        scaling = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        points = product.source.zero_point, product.weights.zero_point, product.output.zero_point
        zeros = (int_vector(*points, 0),)
    defines = (
        *(*product.defines(), ("FILTER_T", c_type(product.weights)), ("FLAGS", product.of_sums())),
        *(("DEPTH", g.input_depth), ("FILTER_HEIGHT", g.filter_height), ("FILTER_WIDTH", g.filter_width)),
        *(("STRIDE_Y", g.stride_height), ("STRIDE_X", g.stride_width)),
        *(("DILATION_Y", g.dilation_height), ("DILATION_X", g.dilation_width)),
        *(("STRIP", tile.strip), ("STRIPS", tile.strips), ("LINES", tile.lines), ("LANES", tile.lanes)),
        *(("BLOCKS", blocks), ("SOURCE_VECTORS", int(of_source))),
        ("OUTPUT_VECTORS", int(g.output_depth % run == 0)),
    )
    return Launch(
        Kernel("conv_2d_few_channels.cl", "conv_2d_few_channels", defines),
        (
            *(product.source, product.weights, product.bias, *scaling, product.output),
            int_vector(g.input_height, g.input_width, g.padding_top, g.padding_left),
            int_vector(g.output_height, g.output_width, g.output_depth, 0),
            *zeros,
            *product.bounds(),
        ),
        (tile.items * blocks * across, down, g.batches),
        (tile.items, 1, 1),
        flops=product.flops,
        bytes_moved=product.bytes_moved,
    )
