# SPDX-License-Identifier: Apache-2.0
"""Products of matrices on GPU-type devices: tiles in local memory, sums shared by a group, and depthwise quads.

Work-groups with barriers run on every OpenCL device; on CPU-type ones they are slow, so that those are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.convolution.few_channels import few_channels_launch
from gpu_driver.convolution.matmul import FILTER_VECTORS, SOURCE_VECTORS, of_batches, of_product
from gpu_driver.convolution.units import estimate, smallest_units_launch, time_to_bring, units_launch
from gpu_driver.kernel import Kernel, Packed, int_vector
from gpu_driver.launch import Launch, PersistentKind, PersistentStep
from gpu_driver.splits.groups import group_defines, one_group_each, share_outputs
from gpu_driver.splits.vectors import c_type
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.convolution.matmul import Matmul
    from gpu_driver.convolution.product import Product
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Scalar
    from gpu_driver.tuning_values import Tuning
    from nn_runtime.operations.batch_matmul import BatchMatmul

_TILE_ITEMS, _NARROW_ITEMS = 256, 64
"""ITEMS of matmul_tiled.cl and of matmul_narrow.cl."""
_DEPTH, _BANK_PADDING = 16, 4
"""DEPTH of matmul_tiled.cl, and what its LINE adds to TILE."""


@dataclass(frozen=True)
class Tile:
    """TILE, RUN and SLICES of matmul_tiled.cl.

    resident: groups that a compute unit has registers for, at 128 of a work-item, 64 or 96 where its part is of 16
    sums, by NVIDIA's assembler.
    """

    side: int
    run: int
    slices: int
    resident: int

    @property
    def terms(self) -> int:
        """Terms that are in local memory at once."""
        return _DEPTH * self.slices

    @property
    def local_bytes(self) -> int:
        """Local memory of a group."""
        return 8 * self.terms * (self.side + _BANK_PADDING)

    def groups(self, matmul: Matmul) -> int:
        """Return how many groups a product takes."""
        return -(-matmul.rows // self.side) * -(-matmul.columns // self.side) * matmul.groups

    def speed(self, tuning: Tuning) -> float:
        """Return the speed relative to the largest: how often a value in local memory is used, less for slices."""
        return {_SMALL_TILE: tuning.small_tile, _MIDDLE_TILE: tuning.middle_tile}.get(self.side, 100) / 100


_SMALL_TILE, _MIDDLE_TILE = 32, 64
TILES = (Tile(128, 8, 1, 2), Tile(_MIDDLE_TILE, 4, 1, 4), Tile(_SMALL_TILE, 4, 4, 2))
_MANY_REGISTERS = ("nvidia", "amd")
"""Platforms whose work-items have the registers that the largest tile takes: 64 sums and more each."""
_SUMS_A_CYCLE = 128
"""To which a compute unit adds a term."""
_CYCLES_AN_OUTPUT, _CYCLES_OF_A_GROUP = 0.4, 2000
"""What a compute unit takes to finish an output, and what its groups wait at their beginning and end."""
_NARROW_TERMS = 64
_QUAD = 4
_GROUP_QUADS = 8
"""Of depthwise_conv_2d.cl:depthwise_conv_2d_groups."""
_PIXEL, _STRIP, _TILE = (1, 1), (1, 4), (2, 4)
"""Lines and pixels that a work-item has four channels of: of depthwise_conv_2d.cl, strips only of persistent.cl."""


def product_launch(product: Product, device: DeviceProfile) -> Launch | None:
    """Return the launch of a convolution or FULLY_CONNECTED by a kernel for GPU-type devices, or None if none fits."""
    if fits_quads(product, device):
        return _depthwise(product, device)
    if product.geometry.depthwise:
        return None
    return few_channels_launch(product, device) or _by_groups(of_product(product), device)


def batches_launch(
    lhs: BoundOperand, rhs: BoundOperand, output: BoundOperand, sizes: BatchMatmul, device: DeviceProfile
) -> Launch | None:
    """Return the launch of a BATCH_MATMUL by the kernels of this module, or None if none fits."""
    return _by_groups(of_batches(lhs, rhs, output, sizes), device)


def fits_tiled(device: DeviceProfile, tile: Tile) -> bool:
    """Tell whether matmul_tiled.cl applies with such tiles: no CPU-type device; work-group and local memory suffice."""
    return _holds(device, _TILE_ITEMS) and tile.local_bytes <= device.local_mem_bytes


def fits_narrow(matmul: Matmul, device: DeviceProfile) -> bool:
    """Tell whether matmul_narrow.cl applies: as its Needs says, few rows and long sums, no CPU-type device."""
    return (
        _holds(device, _NARROW_ITEMS)
        and matmul.rows <= device.tuning.narrow_rows
        and matmul.terms >= _NARROW_TERMS
        and matmul.window == (1, 1, 0, 0)
        and matmul.source_strides[3] == matmul.filter_strides[1] == 1
    )


def fits_quads(product: Product, device: DeviceProfile) -> bool:
    """Tell whether depthwise_conv_2d.cl applies: NHWC, multiplier 1, at least four channels, no CPU-type device."""
    g = product.geometry
    return (
        not device.is_cpu
        and g.depth_multiplier == 1
        and not g.nchw
        and g.input_depth >= _QUAD
        and product.residual is None
    )


def suits_depthwise_tile(product: Product, tile: tuple[int, int], device: DeviceProfile) -> bool:
    """Tell whether depthwise_quads.h can have such tiles, and half of the work-items that a device keeps get one."""
    g, (lines, pixels) = product.geometry, tile
    fits = g.input_depth % _QUAD == 0 and g.output_height >= lines and g.output_width >= pixels
    return fits and 2 * _depthwise_items(product, tile) > device.persistent_items


def _depthwise_items(product: Product, tile: tuple[int, int]) -> int:
    g, (lines, pixels) = product.geometry, tile
    return -(-g.input_depth // _QUAD) * -(-g.output_height // lines) * -(-g.output_width // pixels) * g.batches


def tile_of(matmul: Matmul, device: DeviceProfile) -> tuple[Tile, float] | None:
    """Return the tile that should take least time, and the cycles of that; None if none fits."""
    largest = largest_tile(matmul, device)
    times = [
        (time_by_floats(matmul, tile, device), tile)
        for tile in TILES
        if tile.side <= largest and fits_tiled(device, tile)
    ]
    time, tile = min(times, key=lambda pair: pair[0], default=(0.0, None))
    return None if tile is None else (tile, time)


def time_by_floats(matmul: Matmul, tile: Tile, device: DeviceProfile) -> float:
    """Estimate the cycles of matmul_tiled.cl with a tile."""
    vectors = matmul.vectors(tile.run, 1)
    size_bytes = dtype_of(matmul.source.type).itemsize
    elements = tile.side * -(-matmul.terms // _DEPTH) * _DEPTH
    brought = sum(
        time_to_bring(elements, size_bytes, bool(vectors & side)) for side in (SOURCE_VECTORS, FILTER_VECTORS)
    )
    cycles = tile.side * elements / (_SUMS_A_CYCLE * tile.speed(device.tuning)) + brought
    turns = -(-matmul.terms // tile.terms)
    return estimate(
        cycles / turns,
        turns,
        tile.side**2 * _CYCLES_AN_OUTPUT,
        tile.groups(matmul),
        tile.resident,
        device.tuning.turn_cycles,
        _CYCLES_OF_A_GROUP,
        device,
    )


def largest_tile(matmul: Matmul, device: DeviceProfile) -> int:
    """Return the largest tile whose part for a work-item fits in its registers; 8-bit sums take twice as many."""
    everything = max(tile.side for tile in TILES)
    return everything if device.slug in _MANY_REGISTERS and not matmul.quantized else _MIDDLE_TILE


def _holds(device: DeviceProfile, items: int) -> bool:
    return not device.is_cpu and items <= min(device.max_work_group_size, device.max_work_item_sizes[0])


def _by_groups(matmul: Matmul, device: DeviceProfile) -> Launch | None:
    if fits_narrow(matmul, device):
        return _narrow(matmul)
    if device.suits_persistence(matmul.flops, matmul.bytes_moved):
        # Of few rows of floats, whose lines have few terms, tiles whose slices share the terms take less time.
        is_float = matmul.source.type == OperandCode.TENSOR_FLOAT32
        smallest = None if is_float else smallest_units_launch(matmul, device)
        if smallest is not None or fits_tiled(device, TILES[-1]):
            return smallest or _tiled(matmul, TILES[-1])
    found = tile_of(matmul, device)
    if found is None:
        return None
    tile, time = found
    return units_launch(matmul, device, time) or _tiled(matmul, tile)


def _tiled(matmul: Matmul, tile: Tile) -> Launch:
    kernel = Kernel("matmul_tiled.cl", "matmul_tiled", (*matmul.defines(), ("TILE", tile.side), *matmul.layout()))
    groups = tile.groups(matmul)
    launch = matmul.launch(kernel, groups, _TILE_ITEMS, matmul.vectors(tile.run, _QUAD))
    return replace(launch, persistent=matmul.persistent(groups))


def _narrow(matmul: Matmul) -> Launch:
    both = SOURCE_VECTORS | FILTER_VECTORS
    found = matmul.vectors(_QUAD, _QUAD) & both
    kernel = Kernel("matmul_narrow.cl", "matmul_narrow", matmul.defines())
    groups = matmul.rows * matmul.columns * matmul.groups
    return matmul.launch(kernel, groups, _NARROW_ITEMS, both if found == both else 0)


def _depthwise(product: Product, device: DeviceProfile) -> Launch:
    g = product.geometry
    depth = g.input_depth
    scaling: tuple[Argument, ...] = ()
    zeros: tuple[Scalar, ...] = ()
    if product.quantized:
        scaling = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        zeros = (int_vector(product.source.zero_point, product.weights.zero_point, product.output.zero_point, 0),)
    pixels, quads = g.output_height * g.output_width * g.batches, -(-depth // _QUAD)
    defines = (*product.defines(), ("FILTER_T", c_type(product.weights)))
    if share_outputs(pixels * depth, g.filter_height * g.filter_width, device, multiple=_GROUP_QUADS):
        form, defines = "groups", (*defines, *group_defines(device))
        sizes = one_group_each(-(-quads // _GROUP_QUADS) * pixels, device)
        persistent = None
    else:
        form, tile = ("tiles", _TILE) if suits_depthwise_tile(product, _TILE, device) else ("pixels", _PIXEL)
        sizes = linear(_depthwise_items(product, tile), device)
        kind, part = PersistentKind.DEPTHWISE_PIXELS, _PIXEL
        if suits_depthwise_tile(product, _STRIP, device):
            kind, part = PersistentKind.DEPTHWISE_STRIPS, _STRIP
        persistent = PersistentStep(kind, _depthwise_items(product, part))
    return Launch(
        Kernel("depthwise_conv_2d.cl", f"depthwise_conv_2d_{form}", defines),
        (
            *(product.source, product.weights, product.bias, *scaling, product.output),
            int_vector(g.input_height, g.input_width, depth, int(depth % _QUAD == 0)),
            int_vector(g.output_height, g.output_width, depth, g.batches),
            int_vector(g.filter_height, g.filter_width, g.padding_top, g.padding_left),
            int_vector(g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
            *zeros,
            *product.bounds(),
        ),
        *sizes,
        flops=product.flops,
        bytes_moved=product.bytes_moved,
        persistent=persistent,
    )
