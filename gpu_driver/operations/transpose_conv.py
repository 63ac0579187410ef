# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV_2D: convolutions phase by phase, packed on CPU-type devices, tiled on GPUs; else a general kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain import redirected
from gpu_driver.convolution import tiled
from gpu_driver.convolution.product import ELEMENT_NAMES, Product
from gpu_driver.kernel import Kernel, Packed, Scratch, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import Side, dense_strides, image_strides, strided_copy
from gpu_driver.launchers.worksize import linear
from gpu_driver.operations import launches
from gpu_driver.operations.conv import fits_packed, packed_product
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.transpose_conv import transpose_convolution

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from gpu_driver.launch import Steps
    from nn_runtime.operations.transpose_conv import TransposeConvolution

_LEAST_PRODUCTS = 1 << 24
"""Of an operation for whose phases a GPU makes two launches each. Not measured."""


@launches(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch | tuple[Launch | Steps, ...]:
    """TRANSPOSE_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; kernels of CONV_2D, or transpose_conv_2d.cl."""
    g = transpose_convolution(op)
    tensors = op.input("input"), op.input("filter"), op.input("bias"), op.outputs[0]
    product = Product(*tensors, None, g.activation, _phase_geometry(g, (0, 0)))
    if has_phases(g) and (fits_packed(product, device) or _fits_tiled(product, g, device)):
        phases = ((y, x) for y in range(g.stride_height) for x in range(g.stride_width))
        kept = (phase for phase in phases if phase[0] < g.output_height and phase[1] < g.output_width)
        return tuple(one for phase in kept for one in _one_phase(product, g, phase, device))
    return _general(product, g, device)


def _fits_tiled(product: Product, g: TransposeConvolution, device: DeviceProfile) -> bool:
    """Tell whether tiles take every phase, and are worth so many launches."""
    is_large = g.input_height * g.input_width * g.batches * product.weights.count >= _LEAST_PRODUCTS
    is_constant = product.weights.constant is not None
    return is_large and is_constant and tiled.product_launch(product, device) is not None


def has_phases(g: TransposeConvolution) -> bool:
    """Whether the pixels oy = y (mod stride), ox alike, are a convolution for every (y, x): some tap reaches them."""
    return g.filter_height >= g.stride_height and g.filter_width >= g.stride_width


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


def _one_phase(
    product: Product, g: TransposeConvolution, phase: tuple[int, int], device: DeviceProfile
) -> tuple[Launch | Steps, Launch]:
    """Return the convolution of one phase into scratch memory, and the copy of its pixels to their places."""
    y, x = phase
    geometry, output, weights = _phase_geometry(g, phase), product.output, product.weights
    first_y, first_x = (y + g.padding_top) % g.stride_height, (x + g.padding_left) % g.stride_width
    if weights.constant is None:
        raise ValueError("the filter of a phase is a constant")
    taps = np.ascontiguousarray(
        weights.constant[:, first_y :: g.stride_height, first_x :: g.stride_width][:, ::-1, ::-1]
    )
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
        2 * source.count * (weights.count // g.input_depth),
        source.size_bytes + weights.size_bytes + output.size_bytes,
    )
