# SPDX-License-Identifier: Apache-2.0
"""Products of matrices on GPU-type devices: tiles in local memory, sums shared by a group, and depthwise quads.

Work-groups with barriers run on every OpenCL device; on CPU-type ones they are slow, so that those are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Kernel, Launch, Packed, float32, int32, int_vector
from gpu_driver.launchers.strided import image_strides
from gpu_driver.launchers.vectors import c_type
from gpu_driver.launchers.worksize import linear
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.quantization import convolution_multipliers

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.convolution.product import Product
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument, Scalar
    from nn_runtime.operations.batch_matmul import BatchMatmul

_TILE_ITEMS, _NARROW_ITEMS = 256, 64
"""ITEMS of matmul_tiled.cl and of matmul_narrow.cl."""
_DEPTH, _BANK_PADDING = 16, 4
"""DEPTH of matmul_tiled.cl, and what its LINE adds to TILE."""
_TILE_SPEEDS = {128: 1.0, 64: 0.7, 32: 0.4}
"""Speeds of tiles by their size, relative to the largest: how often a value in local memory is used. Not measured."""
_MIDDLE_TILE = 64
_MANY_REGISTERS = ("nvidia", "amd")
"""Platforms whose work-items have the registers that the largest tile takes: 64 sums and more each."""
_NARROW_ROWS, _NARROW_TERMS = 4, 64
_QUAD = 4
_SOURCE_VECTORS, _FILTER_VECTORS, _OUTPUT_VECTORS = 1, 2, 4
"""As in common/matmul.h."""


@dataclass(frozen=True)
class _Matmul:
    """What matmul_tiled.cl and matmul_narrow.cl compute; strides (batch, y, x, channel), one filter for each group.

    group_strides (source, weights, output, channel), filter_strides (column, term); `image` (height, width, depth),
    `window` (filter height, width, padding top, left), `steps` (stride y, x, dilation y, x).
    """

    source: BoundOperand
    weights: BoundOperand
    output: BoundOperand
    operands: tuple[Argument, ...]
    source_strides: tuple[int, int, int, int]
    output_strides: tuple[int, int, int, int]
    group_strides: tuple[int, int, int, int]
    filter_strides: tuple[int, int]
    image: tuple[int, int, int]
    out: tuple[int, int]
    batches: int
    columns: int
    terms: int
    groups: int
    window: tuple[int, int, int, int]
    steps: tuple[int, int, int, int]
    bounds: tuple[Scalar, Scalar]
    rounds_once: bool = False

    @property
    def rows(self) -> int:
        """Rows of each group's product."""
        return self.batches * self.out[0] * self.out[1]

    @property
    def quantized(self) -> bool:
        """Whether sums are requantised."""
        return self.output.type in QUANT8_TYPES

    def defines(self) -> tuple[tuple[str, str | int], ...]:
        """Return the defines of common/matmul.h."""
        return ("T", c_type(self.source)), ("FILTER_T", c_type(self.weights)), ("QUANTIZED", int(self.quantized))

    def launch(self, kernel: Kernel, groups: int, items: int, vectors: int) -> Launch:
        """Return the launch of a kernel with the parameters of common/matmul.h over so many groups of work-items."""
        zeros: tuple[Scalar, ...] = ()
        if self.quantized:
            points = self.source.zero_point, self.weights.zero_point, self.output.zero_point
            zeros = (int_vector(*points, int(self.rounds_once)),)
        return Launch(
            kernel,
            (
                *(self.source, self.weights, *self.operands, self.output),
                int_vector(*self.source_strides),
                int_vector(*self.output_strides),
                int_vector(*self.group_strides),
                int_vector(*self.image, self.groups),
                int_vector(*self.out, self.columns, self.batches),
                int_vector(*self.window),
                int_vector(*self.steps),
                int_vector(*self.filter_strides, self.terms, vectors),
                *zeros,
                *self.bounds,
            ),
            (groups * items,),
            (items,),
            2 * self.output.count * self.terms,
            self.source.size_bytes + self.weights.size_bytes + self.output.size_bytes,
        )


def product_launch(product: Product, device: DeviceProfile) -> Launch | None:
    """Return the launch of a convolution or FULLY_CONNECTED by the kernels of this module, or None if none fits."""
    if fits_quads(product, device):
        return _quads(product, device)
    if product.geometry.depthwise:
        return None
    matmul = _of_product(product)
    if fits_narrow(matmul, device):
        return _narrow(matmul)
    return _tiled(matmul, device) if fits_tiled(device) else None


def batches_launch(
    lhs: BoundOperand, rhs: BoundOperand, output: BoundOperand, sizes: BatchMatmul, device: DeviceProfile
) -> Launch | None:
    """Return the launch of a BATCH_MATMUL by the kernels of this module, or None if none fits."""
    matmul = _of_batches(lhs, rhs, output, sizes)
    if fits_narrow(matmul, device):
        return _narrow(matmul)
    return _tiled(matmul, device) if fits_tiled(device) else None


def fits_tiled(device: DeviceProfile, tile: int = min(_TILE_SPEEDS)) -> bool:
    """Tell whether matmul_tiled.cl applies with such tiles: no CPU-type device; work-group and local memory suffice."""
    return _holds(device, _TILE_ITEMS) and 8 * _DEPTH * (tile + _BANK_PADDING) <= device.local_mem_bytes


def fits_narrow(matmul: _Matmul, device: DeviceProfile) -> bool:
    """Tell whether matmul_narrow.cl applies: as its Needs says, few rows and long sums, no CPU-type device."""
    return (
        _holds(device, _NARROW_ITEMS)
        and matmul.rows <= _NARROW_ROWS
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


def tile_of(matmul: _Matmul, device: DeviceProfile) -> int:
    """Return the tile that should take least time: whole waves of groups over the compute units, by a tile's speed."""

    def time(tile: int) -> float:
        groups = -(-matmul.rows // tile) * -(-matmul.columns // tile) * matmul.groups
        return -(-groups // device.compute_units) * tile * tile / _TILE_SPEEDS[tile]

    largest = largest_tile(matmul, device)
    return min((tile for tile in _TILE_SPEEDS if tile <= largest and fits_tiled(device, tile)), key=time)


def largest_tile(matmul: _Matmul, device: DeviceProfile) -> int:
    """Return the largest tile whose part for a work-item fits in its registers; 8-bit sums take twice as many."""
    return max(_TILE_SPEEDS) if device.slug in _MANY_REGISTERS and not matmul.quantized else _MIDDLE_TILE


def _holds(device: DeviceProfile, items: int) -> bool:
    return not device.is_cpu and items <= min(device.max_work_group_size, device.max_work_item_sizes[0])


def _tiled(matmul: _Matmul, device: DeviceProfile) -> Launch:
    tile = tile_of(matmul, device)
    layout = (
        ("ROWS_CONTIGUOUS", int(matmul.source_strides[3] != 1)),
        (
            "COLUMNS_CONTIGUOUS",
            int(matmul.filter_strides[1] != 1),
        ),
    )
    kernel = Kernel("matmul_tiled.cl", "matmul_tiled", (*matmul.defines(), ("TILE", tile), *layout))
    groups = -(-matmul.rows // tile) * -(-matmul.columns // tile) * matmul.groups
    return matmul.launch(kernel, groups, _TILE_ITEMS, _vectors(matmul, tile // 16))


def _narrow(matmul: _Matmul) -> Launch:
    both = _SOURCE_VECTORS | _FILTER_VECTORS
    found = _vectors(matmul, _QUAD) & both
    kernel = Kernel("matmul_narrow.cl", "matmul_narrow", matmul.defines())
    groups = matmul.rows * matmul.columns * matmul.groups
    return matmul.launch(kernel, groups, _NARROW_ITEMS, both if found == both else 0)


def _vectors(matmul: _Matmul, run: int) -> int:
    """Return what aligned vectors may read and write: `run` terms, and at most four columns of the output."""
    *outer, channel = matmul.source_strides
    source = (*outer, matmul.group_strides[0], matmul.image[2])
    weights = matmul.filter_strides[0], matmul.group_strides[1], matmul.terms
    *outer_output, output_channel = matmul.output_strides
    output = (*outer_output, matmul.group_strides[2], matmul.columns)
    return (
        _SOURCE_VECTORS * (channel == 1 and _multiples(source, run))
        | _FILTER_VECTORS * (matmul.filter_strides[1] == 1 and _multiples(weights, run))
        | _OUTPUT_VECTORS * (output_channel == 1 and _multiples(output, min(run, _QUAD)))
    )


def _multiples(values: tuple[int, ...], of: int) -> bool:
    return all(value % of == 0 for value in values)


def _of_product(product: Product) -> _Matmul:
    g, groups = product.geometry, product.groups
    depth, columns = g.input_depth // groups, g.output_depth // groups
    terms = g.filter_height * g.filter_width * depth
    source_strides = image_strides(g.input_height, g.input_width, g.input_depth, g.nchw)
    output_strides = image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)
    return _Matmul(
        product.source,
        product.weights,
        product.output,
        (product.bias, *_scaling(product)),
        source_strides,
        output_strides,
        (depth * source_strides[3], columns * terms, columns * output_strides[3], columns),
        (terms, 1),
        (g.input_height, g.input_width, depth),
        (g.output_height, g.output_width),
        g.batches,
        columns,
        terms,
        groups,
        (g.filter_height, g.filter_width, g.padding_top, g.padding_left),
        (g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
        product.bounds(),
        product.rounds_once,
    )


def _scaling(product: Product) -> tuple[Argument, ...]:
    """Return multipliers and exponents of an 8-bit product, else the residual and whether there is one."""
    if product.quantized:
        return tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
    return product.residual_arguments()


def _of_batches(lhs: BoundOperand, rhs: BoundOperand, output: BoundOperand, sizes: BatchMatmul) -> _Matmul:
    """Return products of pairs as groups of a 1x1 convolution: rows are pixels of one line, terms are channels."""
    rows, columns, depth = sizes.rows, sizes.columns, sizes.depth
    row, term = (1, rows) if sizes.adj_x else (depth, 1)
    if output.type in QUANT8_TYPES:
        scaling = [np.broadcast_to(part, columns) for part in convolution_multipliers(lhs, rhs, output)]
        operands: tuple[Argument, ...] = tuple(Packed(np.ascontiguousarray(part)) for part in scaling)
        bounds, bias = _whole_range(np.dtype(np.int8)), np.zeros(columns, np.int32)
    else:
        operands = lhs, int32(0)
        is_float = output.type in FLOAT_TYPES
        bounds = (float32(-np.inf), float32(np.inf)) if is_float else _whole_range(np.dtype(np.int32))
        bias = np.zeros(columns, dtype_of(output.type))
    return _Matmul(
        lhs,
        rhs,
        output,
        (Packed(bias), *operands),
        (0, 0, row, term),
        (0, 0, columns, 1),
        (rows * depth, depth * columns, rows * columns, 0),
        (depth, 1) if sizes.adj_y else (1, columns),
        (1, rows, depth),
        (1, rows),
        1,
        columns,
        depth,
        sizes.batches,
        (1, 1, 0, 0),
        (1, 1, 1, 1),
        bounds,
    )


def _whole_range(dtype: np.dtype[np.signedinteger]) -> tuple[Scalar, Scalar]:
    info = np.iinfo(dtype)
    return int32(int(info.min)), int32(int(info.max))


def _quads(product: Product, device: DeviceProfile) -> Launch:
    g = product.geometry
    depth = g.input_depth
    scaling: tuple[Argument, ...] = ()
    zeros: tuple[Scalar, ...] = ()
    if product.quantized:
        scaling = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        zeros = (int_vector(product.source.zero_point, product.weights.zero_point, product.output.zero_point, 0),)
    items = -(-depth // _QUAD) * -(-g.output_width // _QUAD) * g.output_height * g.batches
    return Launch(
        Kernel(
            "depthwise_conv_2d.cl",
            "depthwise_conv_2d_quads",
            (*product.defines(), ("FILTER_T", c_type(product.weights))),
        ),
        (
            *(product.source, product.weights, product.bias, *scaling, product.output),
            int_vector(g.input_height, g.input_width, depth, int(depth % _QUAD == 0)),
            int_vector(g.output_height, g.output_width, depth, g.batches),
            int_vector(g.filter_height, g.filter_width, g.padding_top, g.padding_left),
            int_vector(g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
            *zeros,
            *product.bounds(),
        ),
        *linear(items, device),
        product.flops,
        product.bytes_moved,
    )
