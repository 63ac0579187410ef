# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D: small groups by lanes of vectors, others by packed kernels on CPU-type devices, else conv_2d.cl."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain import redirected
from gpu_driver.convolution.packing import EXACT_FLOAT_LIMIT
from gpu_driver.convolution.product import Product
from gpu_driver.kernel import Kernel, Packed, Scratch, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.operations.conv import (
    depthwise_packed,
    fits_depthwise_packed,
    fits_packed,
    general,
    packed_product,
)
from gpu_driver.splits.vectors import LANES
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operand import ChannelQuant
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.grouped_conv import grouped_convolution
from nn_runtime.operations.sliding_window import SlidingWindow

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Steps
    from nn_runtime.operand import Array

_DEPTHS_OF_LANES = (2, 4, 8, 16)
_GREATEST_PRODUCT = 255 * 255
_MOST_GROUPS = 64
"""More groups than these would take more launches than they are worth."""


@launches(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch | Steps | tuple[Launch | Steps, ...]:
    """GROUPED_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; grouped_conv_2d.cl, or kernels of convolutions."""
    window = grouped_convolution(op)
    geometry = Convolution(**{field.name: getattr(window, field.name) for field in fields(SlidingWindow)})
    tensors = op.input("input"), op.input("filter"), op.input("bias"), op.outputs[0]
    product = Product(*tensors, None, window.activation, geometry, window.groups)
    depthwise = _as_depthwise(product)
    if depthwise is not None and fits_depthwise_packed(depthwise, device):
        return depthwise_packed(depthwise, device)
    if _fits_lanes(product, device):
        return _by_lanes(product)
    if window.groups <= _MOST_GROUPS and fits_packed(product, device):
        return tuple(one for group in range(window.groups) for one in _one_group(product, group, device))
    return general(product, device)


def _fits_lanes(product: Product, device: DeviceProfile) -> bool:
    """Whether grouped_conv_2d.cl applies: groups of equally few channels that fill vectors, exact in float."""
    g = product.geometry
    depth = g.input_depth // product.groups
    of_filter = g.filter_height * g.filter_width * depth
    return (
        device.is_cpu
        and product.packable
        and g.input_depth == g.output_depth
        and depth in _DEPTHS_OF_LANES
        and g.input_depth % LANES == 0
        and not (product.quantized and of_filter * _GREATEST_PRODUCT >= EXACT_FLOAT_LIMIT)
    )


def _by_lanes(product: Product) -> Launch:
    """Return the launch of grouped_conv_2d.cl."""
    g, weights, source, output = product.geometry, product.weights, product.source, product.output
    depth = g.input_depth // product.groups
    multipliers = product.multipliers() if product.quantized else ()
    scalings = tuple(Packed(np.ascontiguousarray(values)) for values in multipliers)
    zeros = int_vector(source.zero_point, output.zero_point)
    bias = Packed(product.bias.data.astype(np.int32 if product.quantized else np.float32))
    return Launch(
        Kernel("grouped_conv_2d.cl", "grouped_conv_2d", (*product.defines(), ("GROUP_DEPTH", depth))),
        (
            source,
            Packed(_pack_lanes(weights, depth)),
            bias,
            *scalings,
            output,
            int_vector(g.input_height, g.input_width, g.input_depth, 0),
            int_vector(g.batches, g.output_height, g.output_width, 0),
            int_vector(g.filter_height, g.filter_width),
            int_vector(g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
            int_vector(g.padding_top, g.padding_left),
            zeros,
            *product.bounds(),
        ),
        (g.input_depth // LANES, g.batches * g.output_height),
        (1, 1),
        flops=product.flops,
        bytes_moved=product.bytes_moved,
    )


def _pack_lanes(weights: BoundOperand, depth: int) -> Array:
    """[depth_out, filter_height, filter_width, depth] -> float32 [depth_out / 16, taps, depth (s), 16].

    The zero point is subtracted; channel c has at s its weight for channel (c + s) % depth of its group.
    """
    data = weights.data.astype(np.float32) - np.float32(weights.zero_point)
    channels = data.shape[0]
    turned = (np.arange(channels)[:, np.newaxis] + np.arange(depth)) % depth
    flat = np.take_along_axis(data.reshape(channels, -1, depth), turned[:, np.newaxis], axis=2)
    return np.ascontiguousarray(flat.reshape(channels // LANES, LANES, -1, depth).transpose(0, 2, 3, 1))


def _as_depthwise(product: Product) -> Product | None:
    """Return the same as a DEPTHWISE_CONV_2D where every channel is a group of its own and the filter is constant."""
    geometry, weights = product.geometry, product.weights
    if weights.constant is None or not product.groups == geometry.input_depth == geometry.output_depth:
        return None
    data = np.ascontiguousarray(weights.constant.transpose(3, 1, 2, 0))
    return replace(
        product,
        weights=replace(weights, constant=data, dimensions=data.shape),
        geometry=replace(geometry, depth_multiplier=1),
        groups=1,
    )


def _one_group(product: Product, group: int, device: DeviceProfile) -> tuple[Launch, Steps, Launch]:
    """Return the launches that take a group's input channels out, convolve them and put its output channels in."""
    geometry, groups = product.geometry, product.groups
    depth_in, depth_out = geometry.input_depth // groups, geometry.output_depth // groups
    source = replace(product.source, dimensions=(*product.source.dimensions[:3], depth_in))
    output = replace(product.output, dimensions=(*product.output.dimensions[:3], depth_out))
    part = replace(
        product,
        source=source,
        weights=_rows(product.weights, group, depth_out),
        bias=_rows(product.bias, group, depth_out),
        output=output,
        geometry=replace(geometry, input_depth=depth_in, output_depth=depth_out),
        groups=1,
    )
    taken, made = Scratch(source.size_bytes), Scratch(output.size_bytes)
    convolution = redirected(packed_product(part, device), {source: taken, output: made})
    return (
        strided_copy(
            source.dimensions,
            Side(product.source, dense_strides(product.source.dimensions), group * depth_in),
            Side(taken, dense_strides(source.dimensions)),
            device,
        ),
        convolution,
        strided_copy(
            output.dimensions,
            Side(made, dense_strides(output.dimensions)),
            Side(product.output, dense_strides(product.output.dimensions), group * depth_out),
            device,
        ),
    )


def _rows(operand: BoundOperand, group: int, count: int) -> BoundOperand:
    """Return the rows of a constant that belong to a group of `count` output channels."""
    part = slice(group * count, (group + 1) * count)
    data = None if operand.constant is None else operand.constant[part]
    quant = operand.channel_quant
    scales = None if quant is None else ChannelQuant(quant.scales[part], quant.channel_dim)
    return replace(operand, constant=data, dimensions=(count, *operand.dimensions[1:]), channel_quant=scales)
