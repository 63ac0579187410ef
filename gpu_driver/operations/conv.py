# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, DEPTHWISE_CONV_2D: packed kernels for constant weights on CPU-type devices, tiles on GPUs, else general."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain.dynamic import dynamic_steps
from gpu_driver.chain.reductions import Scaling, fits_sum, reduction_step
from gpu_driver.convolution import dynamic, packing, tiled, winograd
from gpu_driver.convolution.float_rounding import FloatScaling, FloatSearch
from gpu_driver.convolution.neighbours import with_full_lanes
from gpu_driver.convolution.product import ELEMENT_NAMES, Product
from gpu_driver.discovery.dot_products import AMX
from gpu_driver.kernel import Kernel, Packed, Scratch, int32, int_vector
from gpu_driver.launch import Launch, Steps
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import dense_strides, image_strides
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.conv import convolution_geometry

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Scalar
    from nn_runtime.operand import Array

_NOTHING: tuple[Scalar, ...] = ()


@launches(OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D)
def convolution(op: BoundOperation, device: DeviceProfile) -> Launch | Steps | tuple[Launch, Steps]:
    """CONV_2D, DEPTHWISE_CONV_2D. FLOAT32, FLOAT16, QUANT8; NHWC and NCHW; honours every Fusion but a table."""
    product = _fused_product(op)
    mean = _mean_of_pictures(product, device)
    if mean is not None:
        return Steps((mean,))
    product = _of_one_column(_of_one_channel(product))
    if fits_depthwise_packed(product, device):
        return depthwise_packed(product, device)
    if fits_packed(product, device):
        return packed_product(_as_rows(product), device)
    repeated = _with_repeated_channels(product)
    if fits_depthwise_packed(repeated, device):
        return _repeating(product, repeated, device)
    return general(product, device)


def _of_one_column(product: Product) -> Product:
    """Return pictures of one column, to filters as wide, as the rows that they are as well: kernels go along rows."""
    g = product.geometry
    if not product.packable or g.padding_left or not g.input_width == g.output_width == g.filter_width == 1:
        return product
    first, taps, _, last = product.weights.dimensions
    filters = product.weights.data.reshape(first, 1, taps, last)
    weights = replace(product.weights, constant=filters, dimensions=filters.shape)
    geometry = replace(
        g,
        input_height=1,
        input_width=g.input_height,
        output_height=1,
        output_width=g.output_height,
        filter_height=1,
        filter_width=g.filter_height,
        stride_height=1,
        stride_width=g.stride_height,
        dilation_height=1,
        dilation_width=g.dilation_height,
        padding_top=0,
        padding_bottom=0,
        padding_left=g.padding_top,
        padding_right=g.padding_bottom,
    )
    return replace(product, weights=weights, geometry=geometry)


def _with_repeated_channels(product: Product) -> Product:
    """Return a depthwise convolution that makes several channels of one, on a picture that has each as often."""
    g, dims = product.geometry, product.source.dimensions
    if g.depth_multiplier < 2 or g.nchw:
        return product
    source = replace(product.source, dimensions=(*dims[:3], g.output_depth))
    return replace(product, source=source, geometry=replace(g, input_depth=g.output_depth, depth_multiplier=1))


def _repeating(product: Product, repeated: Product, device: DeviceProfile) -> tuple[Launch, Steps]:
    """Return the launches that repeat channels in memory of their own and convolve them one by one."""
    pixels, multiplier = product.source.count, product.geometry.depth_multiplier
    scratch = Scratch(repeated.source.size_bytes)
    return (
        strided_copy((pixels, multiplier), Side(product.source, (1, 0)), Side(scratch, (multiplier, 1)), device),
        chain.redirected(depthwise_packed(repeated, device), {repeated.source: scratch}),
    )


def _of_one_channel(product: Product) -> Product:
    """Return a depthwise convolution of one channel with constant weights as the CONV_2D that it is as well."""
    if not (product.packable and product.geometry.depthwise and product.geometry.input_depth == 1):
        return product
    filters = np.ascontiguousarray(product.weights.data.transpose(3, 1, 2, 0))
    weights = replace(product.weights, constant=filters, dimensions=filters.shape)
    return replace(product, weights=weights, geometry=replace(product.geometry, depth_multiplier=0))


def _as_rows(product: Product) -> Product:
    """Return pictures of one pixel as the pixels of one picture."""
    g = product.geometry
    if not (g.pointwise and g.input_height == g.input_width == 1) or g.batches == 1 or g.nchw:
        return product
    rows = replace(g, batches=1, input_width=g.batches, output_width=g.batches, stride_height=1, stride_width=1)
    return replace(product, geometry=rows)


def packed_product(product: Product, device: DeviceProfile) -> Steps:
    """Return the fastest packed step of chain.cl for a product that `fits_packed`."""
    product = with_full_lanes(product)
    if fits_bytes(product, device):
        return packed_bytes(product, device)
    of_bytes = packed_dynamic(product, device)
    if of_bytes is not None:
        return of_bytes
    return packed_winograd(product) if fits_winograd(product, device) else packed(product)


def fits_bytes(product: Product, device: DeviceProfile) -> bool:
    """Tell whether convolve_bytes.h applies: 8-bit, its instructions work on the device, exact at this depth."""
    depth = product.weights.count // product.geometry.output_depth
    return device.dot4 != 0 and product.quantized and depth <= packing.BYTES_MAX_DEPTH


def fits_winograd(product: Product, device: DeviceProfile) -> bool:
    """Tell whether winograd.h applies to a product that `fits_packed`, is faster, and one buffer takes its filters."""
    g = product.geometry
    return not product.quantized and winograd.fits(g) and winograd.packed_bytes(g) <= device.max_alloc_bytes


def fits_packed(product: Product, device: DeviceProfile) -> bool:
    """Tell whether convolve.h applies: constant weights, NHWC, a device for chains; what rounds once is scaled down."""
    fits = device.builds_chains and product.packable and not product.geometry.depthwise
    return fits and not (product.quantized and product.rounds_once and not product.rounding().at_once)


def fits_depthwise_packed(product: Product, device: DeviceProfile) -> bool:
    """Tell whether depthwise.h applies: as `fits_packed`, multiplier 1, exact."""
    g = product.geometry
    return (
        device.builds_chains
        and product.packable
        and g.depth_multiplier == 1
        and packing.fits_depthwise(g.filter_height * g.filter_width, quantised=product.quantized)
    )


def packed(product: Product) -> Steps:
    """Step of chain.cl with products in float32; weights packed once per device."""
    weights = packing.pack_conv_weights(product.weights.data, product.weights.zero_point)
    constants = _channels(product, weights, packing.pack_channels)
    values = {"zero_in": product.source.zero_point, **_requantization(product)}
    if product.quantized:
        values["chunk"] = packing.exact_chunk(weights, product.greatest_input)
    if _is_of_one_pixel(product):
        halves = packing.as_halves(weights)
        if halves is not None:
            constants = halves, *constants[1:]
            values["half_weights"] = 1
    kernel = chain.chain_kernel(product.defines(), dot4=0)
    return _step(product, chain.Kind.CONVOLVE, kernel, constants, values)


def _is_of_one_pixel(product: Product) -> bool:
    """Whether direct.h: convolve_pixel does it, which takes as long as reading the weights."""
    g = product.geometry
    return not product.quantized and g.is_per_pixel and g.batches * g.output_height * g.output_width == 1


def packed_dynamic(product: Product, device: DeviceProfile) -> Steps | None:
    """Steps of chain.cl with products of bytes made in every run; None where nobody allows it or it is no gain."""
    is_allowed = device.quantizes_inputs and device.dot4 != 0 and product.source.type == OperandCode.TENSOR_FLOAT32
    if not is_allowed or not dynamic.fits(product.geometry):
        return None
    filters, whole = (one.data.reshape(one.dimensions) for one in (product.weights, product.part_of or product.weights))
    weights = dynamic.as_bytes(filters, whole)
    if weights is None:
        return None
    low, high = (bound.item() for bound in product.bounds())
    kernel = chain.chain_kernel(product.defines(), dot4=0)
    return Steps(dynamic_steps(kernel, product, weights, {"low": low, "high": high, **product.residual_values()}))


def packed_winograd(product: Product) -> Steps:
    """Step of chain.cl with transformed weights, and the filters for what these cannot do; packed once per device."""
    filters = product.weights.data
    constants = _channels(product, winograd.pack_weights(filters), packing.pack_channels)
    values: dict[str, int | float] = {"tiles_at_once": winograd.tiles_at_once(product.geometry)}
    kernel = chain.chain_kernel(product.defines(), dot4=0)
    return _step(product, chain.Kind.WINOGRAD, kernel, (*constants, packing.pack_conv_weights(filters)), values)


def packed_bytes(product: Product, device: DeviceProfile) -> Steps:
    """Step of chain.cl with products of bytes; weights packed once per device."""
    source, weights, zero_filter = product.source, product.weights.data, product.weights.zero_point
    is_signed = source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    to_unsigned = 128 if is_signed and device.dot4 != AMX else 0
    folded = packing.fold_input_zero_point(product.bias.data, weights, zero_filter, source.zero_point + to_unsigned)
    lanes = packing.convolution_lanes(product.geometry.output_depth, device.dot4)
    values = {"zero_in": source.zero_point, **_requantization(product)}
    packed = packing.pack_conv_weights_of_bytes(
        weights, zero_filter, lanes, device.dot4, by_rows=product.geometry.dilation_width == 1
    )
    vectors = _of_lanes(product, folded, lanes, chain.CONVOLUTION_BLOCK)
    constants = packed.weights, *vectors, packed.excess, packed.places
    kernel = chain.chain_kernel(product.defines(), dot4=device.dot4)
    return _step(product, chain.Kind.CONVOLVE, kernel, constants, values)


def depthwise_packed(product: Product, device: DeviceProfile) -> Steps:
    """Step of chain.cl, one channel apart from the other; weights packed once per device."""
    if fits_depthwise_bytes(product, device):
        return depthwise_packed_bytes(product, device)
    weights = packing.pack_depthwise_weights(product.weights.data, product.weights.zero_point)
    constants = _channels(product, weights, packing.pack_depthwise_channels)
    values = {"zero_in": product.source.zero_point, **_requantization(product)}
    kernel = chain.common_kernel(product.defines(), device)
    return _step(product, chain.Kind.DEPTHWISE, kernel, constants, values)


def fits_depthwise_bytes(product: Product, device: DeviceProfile) -> bool:
    """Tell whether depthwise_bytes.h applies: 8-bit, 3 x 3 or 5 x 5, room for its tiles, works on the device."""
    g, block = product.geometry, packing.depthwise_block(device.dot4)
    return (
        device.dot4 != 0
        and product.quantized
        and (g.dilation_height, g.dilation_width) == (1, 1)
        and g.stride_width <= 2
        and packing.fits_depthwise_lanes(g.input_depth, block)
        and packing.fits_depthwise_bytes(product.weights.data, product.weights.zero_point)
    )


def depthwise_packed_bytes(product: Product, device: DeviceProfile) -> Steps:
    """Step of chain.cl, one channel apart from the other, with products of bytes."""
    source, weights, zero_filter = product.source, product.weights.data, product.weights.zero_point
    to_unsigned = 128 if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0
    folded = packing.fold_input_zero_point(
        product.bias.data, np.moveaxis(weights, -1, 0), zero_filter, source.zero_point + to_unsigned
    )
    block = packing.depthwise_block(device.dot4)
    lanes = packing.depthwise_lanes(product.geometry.input_depth, block)
    packed_weights, has_rest = packing.pack_depthwise_weights_of_bytes(weights, zero_filter, source.zero_point, block)
    *vectors, modes = _of_lanes(product, folded, lanes, block)
    constants = packed_weights, *vectors, modes + 4 * np.cumsum(has_rest, dtype=np.int32) * has_rest
    values = {"zero_in": source.zero_point, **_requantization(product)}
    kernel = chain.chain_kernel(product.defines(), dot4=device.dot4)
    return _step(product, chain.Kind.DEPTHWISE_BYTES, kernel, constants, values)


def _channels(product: Product, weights: Array, pack: Callable[[Array, DTypeLike], Array]) -> tuple[Array, ...]:
    """Return weights, bias, and for 8-bit data mantissas and exponents."""
    if not product.quantized:
        return weights, pack(product.bias.data.astype(np.float32), np.float32)
    vectors = (product.bias.data, *product.multipliers(), product.rounding().offsets)
    return weights, *(pack(values, np.int32) for values in vectors)


def _of_lanes(product: Product, folded: Array, lanes: Array, block: int) -> tuple[Array, ...]:
    """Return bias to modes as finish_bytes.h takes them, by lane, modes by `block` lanes."""
    multipliers, rounding = product.multipliers(), product.rounding()
    found = _float_scaling(product)
    vectors = (folded, *multipliers, rounding.offsets, found.factors, found.rests, found.offsets)

    def any_of_block(channels: Array) -> Array:
        of_lanes = packing.pack_lanes(channels, lanes)
        return np.logical_or.reduceat(of_lanes, np.arange(0, of_lanes.size, block))

    by_floats = chain.Rescale.CENTRED if found.centred else chain.Rescale.BY_FLOATS
    modes = np.where(any_of_block(found.rests != 0), chain.Rescale.PRECISELY, by_floats)
    modes = np.where(any_of_block(~found.exact), chain.Rescale.BY_INTEGERS, modes)
    return *(packing.pack_lanes(values, lanes) for values in vectors), modes.astype(np.int32)


def _float_scaling(product: Product) -> FloatScaling:
    """Return how sums are scaled by floats; what is rounded once, or does not fit a float, is scaled by integers."""
    depth, greatest = product.geometry.output_depth, product.greatest_sums()
    bias = product.bias.data.astype(np.int64)
    if product.rounds_once or int(greatest.max()) >= 1 << 31:
        zeros = np.zeros(depth, np.float32)
        return FloatScaling(zeros, zeros, zeros, np.zeros(depth, np.bool_), centred=False)
    spread = greatest - np.abs(bias)
    low, high = (int(bound.item()) for bound in product.bounds())
    sums = bias - spread, bias + spread
    return FloatSearch(*product.multipliers(), sums, product.before.zero_point, (low, high)).result()


def _requantization(product: Product) -> dict[str, int | float]:
    """Return the fields of a chain's step that say how sums become values."""
    if not product.quantized:
        return {}
    return {"zero_out": product.before.zero_point, "rounding_mode": _rounding_mode(product)}


def _rounding_mode(product: Product) -> chain.Round:
    if product.rounds_once:
        return chain.Round.ONCE
    if not product.rounding().at_once:
        return chain.Round.TWICE
    low, _ = product.bounds()
    return chain.Round.POSITIVE if low.item() >= product.before.zero_point else chain.Round.TWICE_AT_ONCE


def _step(
    product: Product,
    kind: chain.Kind,
    kernel: Kernel,
    constants: tuple[Array, ...],
    values: dict[str, int | float],
) -> Steps:
    low, high = (bound.item() for bound in product.bounds())
    bounds = {"low": low, "high": high}
    step = chain.Step(
        kernel,
        kind,
        product.source,
        product.output,
        residual=product.residual,
        geometry=product.geometry,
        constants=constants,
        values={**values, **bounds, **product.residual_values()},
        flops=product.flops,
        bytes_moved=product.bytes_moved,
    )
    return Steps((step,))


def flip_signs(source: BoundOperand, output: BoundOperand, device: DeviceProfile) -> Steps:
    """Step of chain.cl that makes signed bytes of unsigned ones or back, for CPU-type devices."""
    types = ("T", "char"), ("QUANTIZED", 1)
    depth = source.dimensions[-1]
    rows = source.count // depth
    step = chain.Step(
        chain.common_kernel(types, device),
        chain.Kind.FLIP_SIGNS,
        source,
        output,
        geometry=chain.rows_of(rows, depth),
        flops=source.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )
    return Steps((step,))


def general(product: Product, device: DeviceProfile) -> Launch:
    """Kernels of `tiled.py` where one fits, else conv_2d.cl; weights and bias as the model or the run gives them."""
    return tiled.product_launch(product, device) or element_by_element(product, device)


def element_by_element(product: Product, device: DeviceProfile) -> Launch:
    """Kernel conv_2d.cl:conv_2d, which takes everything but an ADD to 8-bit results (ValueError)."""
    g = product.geometry
    if product.quantized and product.residual is not None:
        raise ValueError("conv_2d.cl adds nothing to 8-bit results")
    extra, zeros = product.residual_arguments(), _NOTHING
    if product.quantized:
        extra = tuple(Packed(np.ascontiguousarray(values)) for values in product.multipliers())
        zeros = tuple(int32(one.zero_point) for one in (product.source, product.weights, product.output))
        zeros = *zeros, int32(product.rounds_once)
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
        flops=product.flops,
        bytes_moved=product.bytes_moved,
    )


def _mean_of_pictures(product: Product, device: DeviceProfile) -> chain.Step | None:
    """Return the step for an 8-bit depthwise convolution that weighs all pixels of a picture alike, as of a MEAN."""
    g = product.geometry
    kernel = chain.step_kernel(product.output, device)
    is_whole = (g.filter_height, g.filter_width) == (g.input_height, g.input_width) and not g.padded
    if kernel is None or not product.quantized or not product.packable or not is_whole or g.depth_multiplier != 1:
        return None
    terms, weights, bias = g.filter_height * g.filter_width, product.weights.data, product.bias.data
    multipliers, exponents = product.multipliers()
    equal = all((values == values.flat[0]).all() for values in (weights, bias, multipliers, exponents))
    if not equal or not fits_sum(terms, g.output_depth):
        return None
    weight = int(weights.flat[0]) - product.weights.zero_point
    offset = int(bias.flat[0]) - product.source.zero_point * terms * weight
    if 255 * terms * abs(weight) + abs(offset) >= 1 << 31:  # reduce_step.h adds and multiplies in 32 bits
        return None
    factor = int(multipliers.flat[0]), int(exponents.flat[0])
    low, high = (int(bound.item()) for bound in product.bounds())
    scaling = Scaling(weight, offset, *factor, product.output.zero_point, low, high)
    return reduction_step(kernel, product.source, product.output, (g.batches, terms, g.output_depth), scaling)


def _fused_product(op: BoundOperation) -> Product:
    geometry, fusion = convolution_geometry(op), op.fusion
    activation = geometry.activation if fusion.activation is None else fusion.activation
    filter_, bias = op.input("filter"), op.input("bias")
    product = fusion.product
    return Product(
        op.input("input"),
        filter_,
        bias,
        op.outputs[0],
        fusion.residual,
        activation,
        geometry,
        product=product,
        own_activation=geometry.activation,
        limits=fusion.bounds,
    )
