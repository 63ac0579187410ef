# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV_2D: convolutions phase by phase, packed on CPU-type devices, tiled on GPUs; else a general kernel."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain import redirected
from gpu_driver.convolution import tiled
from gpu_driver.convolution.neighbours import repeated_bias, repeated_channels, repeated_filters
from gpu_driver.convolution.packing import CHANNEL_BLOCK
from gpu_driver.convolution.product import ELEMENT_NAMES, Product
from gpu_driver.kernel import Kernel, Packed, Scratch, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.operations.conv import fits_packed, packed_product
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import dense_strides, image_strides
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.transpose_conv import transpose_convolution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from gpu_driver.launch import Steps
    from nn_runtime.operand import Array
    from nn_runtime.operations.transpose_conv import TransposeConvolution

_LEAST_PRODUCTS = 1 << 24
"""Of an operation for whose phases a GPU makes two launches each. Not measured."""
_MOST_TAPS_OF_EACH = 16
"""Products with taps of 0 for each of the general kernel's. At 16 phases take a tenth of its time on PoCL."""


@launches(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch | tuple[Launch | Steps, ...]:
    """TRANSPOSE_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; kernels of CONV_2D, or transpose_conv_2d.cl."""
    g = transpose_convolution(op)
    source, weights, bias, output = op.input("input"), op.input("filter"), op.input("bias"), op.outputs[0]
    if weights.is_constant:
        g, weights = _with_taps_in_every_phase(g, weights)
    product = Product(source, weights, bias, output, None, g.activation, _phase_geometry(g, (0, 0)))
    if _has_phases(g) and fits_packed(product, device) and _is_less_at_once(g):
        return _at_once(product, g, device)
    if _has_phases(g) and (fits_packed(product, device) or _fits_tiled(product, g, device)):
        kept = (phase for phase in _phases(g) if phase[0] < g.output_height and phase[1] < g.output_width)
        return tuple(one for phase in kept for one in _one_phase(product, g, phase, device))
    return _general(product, g, device)


def _fits_tiled(product: Product, g: TransposeConvolution, device: DeviceProfile) -> bool:
    """Tell whether tiles take every phase, and are worth so many launches."""
    is_large = g.input_height * g.input_width * g.batches * product.weights.count >= _LEAST_PRODUCTS
    is_constant = product.weights.constant is not None
    return is_large and is_constant and tiled.product_launch(product, device) is not None


def _has_phases(g: TransposeConvolution) -> bool:
    """Whether the pixels oy = y (mod stride), ox alike, are a convolution for every (y, x): some tap reaches them."""
    return g.filter_height >= g.stride_height and g.filter_width >= g.stride_width


def _with_taps_in_every_phase(
    g: TransposeConvolution, weights: BoundOperand
) -> tuple[TransposeConvolution, BoundOperand]:
    """Return the filter with taps of 0 behind it where strides are larger, so that pixels that none reached have one.

    Where these are too many for that, all stays as it is. An infinity makes the pixels NaN that it reaches by taps of 0
    alone.
    """
    height, width = max(g.filter_height, g.stride_height), max(g.filter_width, g.stride_width)
    own = g.filter_height * g.filter_width
    if not own < height * width <= _MOST_TAPS_OF_EACH * own:
        return g, weights
    taps = np.full((g.output_depth, height, width, g.input_depth), weights.zero_point, weights.data.dtype)
    taps[:, : g.filter_height, : g.filter_width] = weights.data.reshape(weights.dimensions)
    return (
        replace(g, filter_height=height, filter_width=width),
        replace(weights, constant=taps, dimensions=taps.shape),
    )


def _phase_geometry(g: TransposeConvolution, phase: tuple[int, int]) -> Convolution:
    """Return the convolution of stride 1 that gives the pixels of a phase: every stride-th tap, the last one first."""
    y, x = phase
    rows, columns = -(-(g.output_height - y) // g.stride_height), -(-(g.output_width - x) // g.stride_width)
    before_y, first_y = divmod(y + g.padding_top, g.stride_height)
    before_x, first_x = divmod(x + g.padding_left, g.stride_width)
    filter_height = len(range(first_y, g.filter_height, g.stride_height))
    filter_width = len(range(first_x, g.filter_width, g.stride_width))
    return Convolution(
        batches=g.batches,
        input_height=g.input_height,
        input_width=g.input_width,
        input_depth=g.input_depth,
        output_height=rows,
        output_width=columns,
        output_depth=g.output_depth,
        filter_height=filter_height,
        filter_width=filter_width,
        stride_height=1,
        stride_width=1,
        dilation_height=1,
        dilation_width=1,
        padding_top=filter_height - 1 - before_y,
        padding_bottom=max(0, rows + before_y - g.input_height),
        padding_left=filter_width - 1 - before_x,
        padding_right=max(0, columns + before_x - g.input_width),
        nchw=g.nchw,
        activation=g.activation,
    )


def _phases(g: TransposeConvolution) -> dict[tuple[int, int], Convolution]:
    """Return the convolutions of all phases."""
    places = itertools.product(range(g.stride_height), range(g.stride_width))
    return {phase: _phase_geometry(g, phase) for phase in places}


def _is_less_at_once(g: TransposeConvolution) -> bool:
    """Whether vectors of the channels of all phases, with weights of 0 for taps of others, are fewer products."""
    if g.output_height % g.stride_height or g.output_width % g.stride_width:
        return False
    phases = _phases(g)
    apart = _vectors(g.output_depth) * sum(one.filter_height * one.filter_width for one in phases.values())
    rows, columns = _reach(phases.values())
    return _vectors(len(phases) * g.output_depth) * len(rows) * len(columns) <= apart


def _vectors(depth: int) -> int:
    return -(-depth // CHANNEL_BLOCK)


def _reach(phases: Iterable[Convolution]) -> tuple[range, range]:
    """Return the rows and columns that phases read for a place, relative to it."""
    tops, lefts, bottoms, rights = zip(
        *(
            (-g.padding_top, -g.padding_left, g.filter_height - g.padding_top, g.filter_width - g.padding_left)
            for g in phases
        ),
        strict=True,
    )
    return range(min(tops), max(bottoms)), range(min(lefts), max(rights))


def _at_once(product: Product, g: TransposeConvolution, device: DeviceProfile) -> tuple[Launch | Steps, Launch]:
    """Return the convolution that makes the pixels of all phases, side by side, and their copy to their places."""
    phases, weights = _phases(g), product.weights
    rows, columns = _reach(phases.values())
    filters = np.full(
        (len(phases), g.output_depth, len(rows), len(columns), g.input_depth), weights.zero_point, weights.data.dtype
    )
    for place, (phase, one) in zip(filters, phases.items(), strict=True):
        top, left = -one.padding_top - rows.start, -one.padding_left - columns.start
        place[:, top : top + one.filter_height, left : left + one.filter_width] = _taps(weights, g, phase)
    filters = filters.reshape(-1, *filters.shape[2:])
    first = phases[0, 0]
    height, width, depth = first.output_height, first.output_width, len(filters)
    geometry = replace(
        first,
        output_depth=depth,
        filter_height=len(rows),
        filter_width=len(columns),
        padding_top=-rows.start,
        padding_bottom=max(0, height - 1 + rows[-1] + 1 - g.input_height),
        padding_left=-columns.start,
        padding_right=max(0, width - 1 + columns[-1] + 1 - g.input_width),
    )
    made = replace(product.output, dimensions=geometry.output_dimensions)
    every = replace(
        product,
        weights=repeated_channels(weights, filters, len(phases)),
        bias=repeated_bias(product.bias, len(phases)),
        output=made,
        geometry=geometry,
        part_of=repeated_filters(weights, len(phases)),
        own_terms=-(-g.filter_height * g.filter_width // len(phases)) * g.input_depth,
    )
    scratch = Scratch(made.size_bytes)
    batch, row, column, _ = image_strides(g.output_height, g.output_width, g.output_depth, nchw=False)
    down, across, line = g.stride_height, g.stride_width, g.stride_width * g.output_depth
    return (
        _product(every, scratch, device),
        strided_copy(
            (g.batches, height, down, width, line),
            Side(scratch, (height * width * depth, width * depth, line, depth, 1)),
            Side(product.output, (batch, down * row, row, across * column, 1)),
            device,
        ),
    )


def _taps(weights: BoundOperand, g: TransposeConvolution, phase: tuple[int, int]) -> Array:
    """Return the weights of a phase, the last tap first."""
    y, x = (
        (one + padding) % stride
        for one, padding, stride in zip(
            phase, (g.padding_top, g.padding_left), (g.stride_height, g.stride_width), strict=True
        )
    )
    return weights.data[:, y :: g.stride_height, x :: g.stride_width][:, ::-1, ::-1]


def _one_phase(
    product: Product, g: TransposeConvolution, phase: tuple[int, int], device: DeviceProfile
) -> tuple[Launch | Steps, Launch]:
    """Return the convolution of one phase into scratch memory, and the copy of its pixels to their places."""
    y, x = phase
    geometry, output, weights = _phase_geometry(g, phase), product.output, product.weights
    taps = np.ascontiguousarray(_taps(weights, g, phase))
    made = replace(output, dimensions=geometry.output_dimensions)
    part = replace(
        product,
        weights=replace(weights, constant=taps, dimensions=taps.shape),
        output=made,
        geometry=geometry,
        part_of=weights,
    )
    scratch = Scratch(made.size_bytes)
    order = (0, 3, 1, 2) if g.nchw else (0, 1, 2, 3)
    batch, row, column, channel = image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)
    places = batch, g.stride_height * row, g.stride_width * column, channel
    return (
        _product(part, scratch, device),
        strided_copy(
            made.dimensions,
            Side(scratch, dense_strides(made.dimensions)),
            Side(output, tuple(places[axis] for axis in order), y * row + x * column),
            device,
        ),
    )


def _product(part: Product, scratch: Scratch, device: DeviceProfile) -> Launch | Steps:
    """Return the convolution of a phase with its output in scratch memory, by packed weights or tiles."""
    if fits_packed(part, device):
        return redirected(packed_product(part, device), {part.output: scratch})
    launch = tiled.product_launch(part, device)
    if launch is None:
        raise ValueError("tiles take every phase, or none")
    memory: dict[int, Argument] = {id(part.output): scratch, id(part.weights): Packed(part.weights.data)}
    return replace(launch, arguments=tuple(memory.get(id(one), one) for one in launch.arguments))


def _general(product: Product, g: TransposeConvolution, device: DeviceProfile) -> Launch:
    """Kernel transpose_conv_2d.cl:transpose_conv_2d; weights and bias as the model or the run gives them."""
    source, weights, output = product.source, product.weights, product.output
    multipliers: tuple[Argument, ...] = ()
    zeros: tuple[Argument, ...] = ()
    if product.quantized:
        multipliers = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        zeros = tuple(int32(one.zero_point) for one in (source, weights, output))
    global_size, local_size = linear(output.count, device)
    filter_type = ELEMENT_NAMES[OperandCode(weights.type)]
    return Launch(
        Kernel("transpose_conv_2d.cl", "transpose_conv_2d", (*product.defines(), ("FILTER_T", filter_type))),
        (
            *(source, weights, product.bias, *multipliers, output),
            int_vector(*image_strides(g.input_height, g.input_width, g.input_depth, g.nchw)),
            int_vector(*image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)),
            int_vector(g.input_height, g.input_width, g.input_depth, g.batches),
            int_vector(g.output_height, g.output_width, g.output_depth, 0),
            int_vector(g.filter_height, g.filter_width, g.padding_top, g.padding_left),
            int_vector(g.stride_height, g.stride_width),
            *zeros,
            *product.bounds(),
        ),
        global_size,
        local_size,
        flops=2 * source.count * (weights.count // g.input_depth),
        bytes_moved=source.size_bytes + weights.size_bytes + output.size_bytes,
    )
