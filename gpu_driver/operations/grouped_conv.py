# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D: packed kernels group by group on CPU-type devices, else the general convolution with groups."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain import redirected
from gpu_driver.launch import Scratch
from gpu_driver.operations import launches
from gpu_driver.operations.conv import (
    Product,
    depthwise_packed,
    fits_depthwise_packed,
    fits_packed,
    general,
    packed_product,
)
from gpu_driver.strided import Side, dense_strides, strided_copy
from nn_runtime.codes import OperationCode
from nn_runtime.operand import ChannelQuant
from nn_runtime.operations.conv import Convolution
from nn_runtime.operations.grouped_conv import grouped_convolution
from nn_runtime.operations.sliding_window import SlidingWindow

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

_MOST_GROUPS = 64
"""More groups than these would take more launches than they are worth."""


@launches(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(op: BoundOperation, device: DeviceProfile) -> Launch | tuple[Launch, ...]:
    """GROUPED_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; kernels of CONV_2D and DEPTHWISE_CONV_2D."""
    window = grouped_convolution(op)
    geometry = Convolution(**{field.name: getattr(window, field.name) for field in fields(SlidingWindow)})
    tensors = op.input("input"), op.input("filter"), op.input("bias"), op.outputs[0]
    product = Product(*tensors, None, window.activation, geometry, window.groups)
    depthwise = _as_depthwise(product)
    if depthwise is not None and fits_depthwise_packed(depthwise, device):
        return depthwise_packed(depthwise, device)
    if window.groups <= _MOST_GROUPS and fits_packed(product, device):
        return tuple(launch for group in range(window.groups) for launch in _one_group(product, group, device))
    return general(product, device)


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


def _one_group(product: Product, group: int, device: DeviceProfile) -> tuple[Launch, Launch, Launch]:
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
    convolution = redirected(packed_product(part, device), {source: taken, output: made}, device)
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
