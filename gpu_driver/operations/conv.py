# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, DEPTHWISE_CONV_2D: packed kernels for constant weights on CPU-type devices, a general one for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import packing
from gpu_driver.bound import BoundOperand
from gpu_driver.launch import Kernel, Launch, Packed, float32, int32, int_vector
from gpu_driver.operations import launches
from gpu_driver.strided import dense_strides, image_strides
from gpu_driver.worksize import linear
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.conv import convolution_geometry
from nn_runtime.quantization import activation_range_float, activation_range_quantized, convolution_multipliers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument, Scalar, Scratch
    from nn_runtime.operand import Array
    from nn_runtime.operations.conv import Convolution

ELEMENT_NAMES = {
    OperandCode.TENSOR_FLOAT32: "float",
    OperandCode.TENSOR_FLOAT16: "half",
    OperandCode.TENSOR_QUANT8_ASYMM: "uchar",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "char",
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: "char",
}
"""OpenCL type of an element in memory (T of common/types.h)."""


@dataclass(frozen=True)
class Product:
    """Operands and geometry of a convolution or a FULLY_CONNECTED, after fusion."""

    source: BoundOperand
    weights: BoundOperand
    bias: BoundOperand
    output: BoundOperand
    residual: BoundOperand | None
    activation: FuseCode
    geometry: Convolution
    groups: int = 1

    @property
    def quantized(self) -> bool:
        """Whether the data is 8-bit."""
        return self.source.type in QUANT8_TYPES

    @property
    def packable(self) -> bool:
        """Whether weights and bias can be packed, because the model holds them."""
        return self.weights.is_constant and self.bias.is_constant and not self.geometry.nchw

    @property
    def flops(self) -> int:
        """Multiplications and additions, counted apart."""
        return 2 * self.output.count * (self.weights.count // self.geometry.output_depth)

    @property
    def bytes_moved(self) -> int:
        """Bytes of input, weights and output."""
        residual = 0 if self.residual is None else self.residual.size_bytes
        return self.source.size_bytes + self.weights.size_bytes + self.output.size_bytes + residual

    def defines(self) -> tuple[tuple[str, str | int], ...]:
        """Return the defines that every kernel of the family takes."""
        return ("T", ELEMENT_NAMES[OperandCode(self.source.type)]), ("QUANTIZED", int(self.quantized))

    def multipliers(self) -> tuple[Array, Array]:
        """Return mantissas and exponents, one per output channel."""
        mantissas, exponents = convolution_multipliers(self.source, self.weights, self.output)
        depth = self.geometry.output_depth
        return np.broadcast_to(mantissas, depth), np.broadcast_to(exponents, depth)

    def bounds(self) -> tuple[Scalar, Scalar]:
        """Return the bounds of the activation in the output's domain."""
        if self.quantized:
            low, high = activation_range_quantized(self.activation, self.output)
            return int32(low), int32(high)
        least, greatest = activation_range_float(self.activation)
        return float32(least), float32(greatest)

    def residual_arguments(self) -> tuple[Argument, ...]:
        """Return (residual, has_residual); any buffer of T stands in where there is none."""
        return self.source if self.residual is None else self.residual, int32(self.residual is not None)


_NOTHING: tuple[Scalar, ...] = ()
_RING = ("TILE_PIXELS", packing.TILE_PIXELS), ("STAGE_VECTORS", packing.STAGE_VECTORS)


@launches(OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D)
def convolution(op: BoundOperation, device: DeviceProfile) -> Launch:
    """CONV_2D, DEPTHWISE_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; honours every field of Fusion."""
    product = _fused_product(op)
    if fits_depthwise_packed(product, device):
        return depthwise_packed(product, device)
    if fits_packed(product, device):
        return packed_product(product, device)
    return general(product, device)


def packed_product(product: Product, device: DeviceProfile) -> Launch:
    """Return the launch of the fastest packed kernel for a product that `fits_packed`."""
    return packed_vnni(product, device) if fits_vnni(product, device) else packed(product, device)


def fits_vnni(product: Product, device: DeviceProfile) -> bool:
    """Tell whether conv_2d_packed_vnni.cl applies: 8-bit, vpdpbusd seen to work on the device, exact at this depth."""
    depth = product.weights.count // product.geometry.output_depth
    return device.x86_vnni and product.quantized and depth <= packing.VNNI_MAX_DEPTH


def fits_packed(product: Product, device: DeviceProfile) -> bool:
    """Tell whether conv_2d_packed.cl applies: constant weights, NHWC, a CPU-type device."""
    return device.is_cpu and product.packable and not product.geometry.depthwise


def fits_depthwise_packed(product: Product, device: DeviceProfile) -> bool:
    """Tell whether depthwise_conv_2d_packed.cl applies: as `fits_packed`, multiplier 1, the window fits its ring."""
    g = product.geometry
    return (
        device.is_cpu
        and product.packable
        and g.depth_multiplier == 1
        and packing.fits_depthwise(
            (g.filter_height, g.filter_width),
            g.stride_width,
            (g.dilation_height, g.dilation_width),
            quantised=product.quantized,
        )
    )


def packed(product: Product, device: DeviceProfile) -> Launch:
    """Kernel conv_2d_packed.cl:conv_2d_packed; weights packed once per device."""
    g = product.geometry
    weights = packing.pack_conv_weights(_constant(product.weights), product.weights.zero_point)
    pixels = g.batches * g.output_height * g.output_width
    split = packing.split_conv(pixels, g.output_depth, device.compute_units)
    chunk = packing.DEPTH_CHUNK
    if product.quantized:
        chunk = packing.exact_chunk(weights, _greatest_input(product.source))
        channels = [packing.pack_channels(values, np.int32) for values in product.multipliers()]
        bias = packing.pack_channels(_constant(product.bias), np.int32)
        extra: tuple[Argument, ...] = tuple(Packed(values) for values in channels)
        zeros: tuple[Argument, ...] = int32(product.source.zero_point), int32(product.output.zero_point)
    else:
        bias = packing.pack_channels(_constant(product.bias).astype(np.float32), np.float32)
        extra, zeros = product.residual_arguments(), ()
    return Launch(
        Kernel("conv_2d_packed.cl", "conv_2d_packed", (*product.defines(), *_tile(packing.DEPTH_CHUNK))),
        (
            *(product.source, Packed(weights), Packed(bias), *extra, product.output),
            *_sizes(g, split),
            int32(chunk),
            *zeros,
            *product.bounds(),
        ),
        split.global_size,
        (1, 1),
        product.flops,
        product.bytes_moved,
    )


def packed_vnni(product: Product, device: DeviceProfile) -> Launch:
    """Kernel conv_2d_packed_vnni.cl:conv_2d_packed_vnni; weights packed once per device."""
    g, source = product.geometry, product.source
    weights, zero_filter = _constant(product.weights), product.weights.zero_point
    to_unsigned = 128 if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0
    folded = packing.fold_input_zero_point(
        _constant(product.bias), weights, zero_filter, source.zero_point + to_unsigned
    )
    vectors = [packing.pack_channels(values, np.int32) for values in (folded, *product.multipliers())]
    split = packing.split_conv(g.batches * g.output_height * g.output_width, g.output_depth, device.compute_units)
    weight_offset = (128 if weights.dtype == np.uint8 else 0) - zero_filter
    defines: tuple[tuple[str, str | int], ...] = (
        ("T", ELEMENT_NAMES[OperandCode(source.type)]),
        *_tile(packing.VNNI_DEPTH_CHUNK),
    )
    return Launch(
        Kernel("conv_2d_packed_vnni.cl", "conv_2d_packed_vnni", defines),
        (
            source,
            Packed(packing.pack_conv_weights_vnni(weights)),
            *(Packed(vector) for vector in vectors),
            product.output,
            *_sizes(g, split),
            int32(weight_offset),
            int32(source.zero_point),
            int32(product.output.zero_point),
            *product.bounds(),
        ),
        split.global_size,
        (1, 1),
        product.flops,
        product.bytes_moved,
    )


def depthwise_packed(product: Product, device: DeviceProfile) -> Launch:
    """Kernel depthwise_conv_2d_packed.cl:depthwise_conv_2d_packed; weights packed once per device."""
    g = product.geometry
    weights = packing.pack_depthwise_weights(_constant(product.weights), product.weights.zero_point)
    split = packing.split_depthwise(g.batches, g.output_height, g.output_depth, device.compute_units)
    zeros: tuple[Argument, ...] = ()
    extra: tuple[Argument, ...] = ()
    if product.quantized:
        bias = packing.pack_depthwise_channels(_constant(product.bias), np.int32)
        extra = tuple(Packed(packing.pack_depthwise_channels(values, np.int32)) for values in product.multipliers())
        zeros = int32(product.source.zero_point), int32(product.output.zero_point)
    else:
        bias = packing.pack_depthwise_channels(_constant(product.bias).astype(np.float32), np.float32)
    sizes = (
        *(g.input_height, g.input_width, g.input_depth, g.output_height, g.output_width),
        *(g.filter_height, g.filter_width, g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
        *(g.padding_top, g.padding_left, split.rows_per_item, split.blocks_per_item),
    )
    return Launch(
        Kernel("depthwise_conv_2d_packed.cl", "depthwise_conv_2d_packed", (*product.defines(), *_RING)),
        (
            *(product.source, Packed(weights), Packed(bias), *extra, product.output),
            *(int32(size) for size in sizes),
            *zeros,
            *product.bounds(),
        ),
        split.global_size,
        (1, 1, 1),
        product.flops,
        product.bytes_moved,
    )


def general(product: Product, device: DeviceProfile) -> Launch:
    """Kernel conv_2d.cl:conv_2d; weights and bias as the model or the run gives them."""
    g = product.geometry
    extra, zeros = product.residual_arguments(), _NOTHING
    if product.quantized:
        extra = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        zeros = tuple(int32(one.zero_point) for one in (product.source, product.weights, product.output))
    out, tap_y, tap_x, channel = dense_strides(product.weights.dimensions)
    if g.depthwise:
        group_depth, outputs_per_group = 1, g.depth_multiplier
        filter_strides = (channel, tap_y, tap_x, 0)
    else:
        group_depth, outputs_per_group = g.input_depth // product.groups, g.output_depth // product.groups
        filter_strides = (out, tap_y, tap_x, channel)
    count = product.output.count
    global_size, local_size = linear(count, device)
    filter_type = ELEMENT_NAMES[OperandCode(product.weights.type)]
    return Launch(
        Kernel("conv_2d.cl", "conv_2d", (*product.defines(), ("FILTER_T", filter_type))),
        (
            *(product.source, product.weights, product.bias, *extra, product.output),
            int_vector(*image_strides(g.input_height, g.input_width, g.input_depth, g.nchw)),
            int_vector(*image_strides(g.output_height, g.output_width, g.output_depth, g.nchw)),
            int_vector(*filter_strides),
            int_vector(g.input_height, g.input_width, group_depth, outputs_per_group),
            int_vector(g.output_height, g.output_width, g.output_depth, g.batches),
            int_vector(g.filter_height, g.filter_width, g.padding_top, g.padding_left),
            int_vector(g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
            *zeros,
            *product.bounds(),
        ),
        global_size,
        local_size,
        product.flops,
        product.bytes_moved,
    )


def redirected(launch: Launch, memory: Mapping[BoundOperand, Scratch]) -> Launch:
    """Return a launch on scratch memory in the place of operands."""
    arguments = (memory.get(one, one) if isinstance(one, BoundOperand) else one for one in launch.arguments)
    return replace(launch, arguments=tuple(arguments))


def _fused_product(op: BoundOperation) -> Product:
    geometry, fusion, source = convolution_geometry(op), op.fusion, op.input("input")
    if fusion.padded_source is not None:
        left, right, top, bottom = fusion.padding
        source = fusion.padded_source
        geometry = replace(
            geometry,
            input_height=geometry.input_height - top - bottom,
            input_width=geometry.input_width - left - right,
            padding_top=geometry.padding_top + top,
            padding_bottom=geometry.padding_bottom + bottom,
            padding_left=geometry.padding_left + left,
            padding_right=geometry.padding_right + right,
        )
    activation = geometry.activation if fusion.activation is None else fusion.activation
    filter_, bias = op.input("filter"), op.input("bias")
    return Product(source, filter_, bias, op.outputs[0], fusion.residual, activation, geometry)


def _tile(depth_chunk: int) -> tuple[tuple[str, int], ...]:
    return ("TILE_PIXELS", packing.TILE_PIXELS), ("DEPTH_CHUNK", depth_chunk)


def _sizes(g: Convolution, split: packing.ConvSplit) -> tuple[Scalar, ...]:
    """Return the size arguments that both packed kernels share."""
    sizes = (
        *(g.batches, g.input_height, g.input_width, g.input_depth, g.output_height, g.output_width, g.output_depth),
        *(g.filter_height, g.filter_width, g.stride_height, g.stride_width, g.dilation_height, g.dilation_width),
        *(g.padding_top, g.padding_left, split.tiles_per_item, split.blocks_per_item),
    )
    return tuple(int32(size) for size in sizes)


def _constant(operand: BoundOperand) -> Array:
    if operand.constant is None:
        raise ValueError(f"operand {operand.index} is not constant")
    return operand.constant


def _greatest_input(source: BoundOperand) -> int:
    """Return the greatest magnitude of a value of the source minus its zero point."""
    info = np.iinfo(dtype_of(source.type))
    return max(int(info.max) - source.zero_point, source.zero_point - int(info.min))
