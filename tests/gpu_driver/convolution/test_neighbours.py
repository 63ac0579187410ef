# SPDX-License-Identifier: Apache-2.0
"""Convolutions that make few channels: several neighbours in a vector, the same sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver.driver import Device as CpuDevice
from gpu_driver.bound import BoundOperand
from gpu_driver.convolution.neighbours import with_full_lanes
from gpu_driver.convolution.product import Product
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.operand import ChannelQuant, dtype_of
from nn_runtime.operations.conv import Convolution
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, SIGNED = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


def product_of(
    width: int, depth: int, taps: int, *, stride: int = 1, dilation: int = 1, scales: tuple[float, ...] = ()
) -> Product:
    """A convolution of rows of 5 channels, as wide as its output is to be."""
    rng = np.random.default_rng(width * depth + taps)
    kind = PER_CHANNEL if scales else FLOAT
    data = rng.integers(-9, 10, (depth, 3, taps, 5)).astype(np.int8 if scales else np.float32)
    quant = ChannelQuant(scales, 0) if scales else None
    weights = BoundOperand(1, kind, data.shape, channel_quant=quant, constant=data)
    bias = BoundOperand(2, FLOAT, (depth,), constant=rng.integers(-9, 10, depth).astype(np.float32))
    reach = (taps - 1) * dilation
    input_width = (width - 1) * stride + reach + 1 - 3
    ends = 4, input_width, 5, 2, width, depth
    geometry = Convolution(1, *ends, 3, taps, 1, stride, 1, dilation, 0, 0, 1, 2, nchw=False, activation=FuseCode.NONE)
    source, output = BoundOperand(0, FLOAT, (1, 4, input_width, 5)), BoundOperand(3, FLOAT, (1, 2, width, depth))
    return Product(source, weights, bias, output, None, FuseCode.NONE, geometry)


def convolved(product: Product, source: Array) -> Array:
    """Return the sums of a product in float64, window by window."""
    g = product.geometry
    padded = np.pad(source.astype(np.float64), ((g.padding_top, g.padding_bottom), (g.padding_left, 99), (0, 0)))
    result = np.empty((g.output_height, g.output_width, g.output_depth))
    for y in range(g.output_height):
        for x in range(g.output_width):
            left = x * g.stride_width
            columns = slice(left, left + (g.filter_width - 1) * g.dilation_width + 1, g.dilation_width)
            window = padded[y : y + g.filter_height, columns]
            result[y, x] = np.einsum("hwi,ohwi->o", window, product.weights.data) + product.bias.data
    return result


@pytest.mark.parametrize(
    ("width", "depth", "taps", "stride", "dilation", "count"),
    [
        (16, 3, 3, 1, 1, 4),
        (15, 3, 3, 1, 1, 5),
        (17, 3, 3, 1, 1, 1),  # not divided by any
        (16, 1, 5, 1, 1, 16),
        (12, 8, 3, 1, 1, 2),
        (12, 9, 3, 1, 1, 1),  # no two fit
        (16, 3, 1, 1, 1, 1),  # neighbours share no columns
        (12, 2, 7, 2, 1, 6),
        (12, 3, 3, 3, 1, 1),  # nor do these
        (16, 2, 9, 1, 2, 8),
        (16, 3, 2, 1, 4, 1),  # more zeros than taps
    ],
)
def test_neighbours_are_one_pixel(width: int, depth: int, taps: int, stride: int, dilation: int, count: int) -> None:
    product = product_of(width, depth, taps, stride=stride, dilation=dilation)
    wide = with_full_lanes(product)
    assert (wide.geometry.output_width, wide.geometry.output_depth) == (width // count, depth * count)
    assert (wide is product) == (count == 1)
    assert wide.flops == product.flops
    source = np.random.default_rng(3).integers(-9, 10, product.source.dimensions[1:]).astype(np.float32)
    assert np.array_equal(convolved(wide, source).reshape(2, width, depth), convolved(product, source))


def test_every_copy_has_the_scales_of_its_channels() -> None:
    wide = with_full_lanes(product_of(8, 3, 3, scales=(0.5, 0.25, 2.0)))
    assert wide.weights.channel_quant == ChannelQuant((0.5, 0.25, 2.0) * 4, 0)


def convolution(
    code: OperandCode, dims: Dimensions, depth: int, taps: int, stride: int, *, filter_zero: int, adds: bool
) -> Graph:
    """A convolution whose scales differ by channel where filter_zero is 0, to which another input is added or not."""
    rng = np.random.default_rng(depth * taps)
    graph, scale = Graph(), 0.0 if code == FLOAT else 0.05
    batches, height, width, channels = dims
    source = graph.input(dims, code, scale, 0 if code == FLOAT else -7)
    shape, scales = (depth, taps, taps, channels), tuple(0.01 * (1 + one) for one in range(depth))
    if code == FLOAT:
        filters = graph.constant(rng.standard_normal(shape).astype(np.float32))
        bias = graph.constant(rng.standard_normal(depth).astype(np.float32))
    else:
        data, biases = rng.integers(-127, 128, shape).astype(np.int8), rng.integers(-900, 900, depth).astype(np.int32)
        if filter_zero:
            filters = graph.constant(data, code, 0.02, filter_zero)
            bias = graph.constant(biases, OperandCode.TENSOR_INT32, float(np.float32(0.05) * np.float32(0.02)))
        else:
            filters = graph.constant(data, PER_CHANNEL, channel_quant=ChannelQuant(scales, 0))
            bias = graph.constant(biases, OperandCode.TENSOR_INT32)
    out = batches, -(-height // stride), -(-width // stride), depth
    numbers = [graph.integer(one) for one in (PaddingCode.SAME, stride, stride, FuseCode.NONE)]
    scale_out = 0.0 if code == FLOAT else 2.5
    made = graph.temporary(out, code, scale_out) if adds else graph.output(out, code, scale_out)
    graph.operation(OperationCode.CONV_2D, [source, filters, bias, *numbers], made)
    if adds:
        other, total = graph.input(out, code, scale_out), graph.output(out, code, scale_out)
        graph.operation(OperationCode.ADD, [made, other, graph.integer(FuseCode.RELU)], total)
    return graph


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(("code", "filter_zero"), [(FLOAT, 0), (SIGNED, 0), (SIGNED, 5)])
@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride"),
    [
        ((1, 6, 16, 24), 3, 3, 1),
        ((2, 5, 15, 7), 3, 5, 1),
        ((1, 9, 40, 32), 1, 9, 1),
        ((2, 7, 24, 3), 2, 7, 2),
        ((1, 3, 60, 16), 8, 3, 1),
        ((1, 4, 16, 130), 5, 3, 1),
    ],
)
def test_results_are_those_of_single_pixels(
    opencl_device: Device,
    monkeypatch: pytest.MonkeyPatch,
    code: OperandCode,
    filter_zero: int,
    dims: Dimensions,
    depth: int,
    taps: int,
    stride: int,
    adds: bool,
) -> None:
    made: list[Product] = []

    def noted(product: Product) -> Product:
        made.append(with_full_lanes(product))
        return made[-1]

    monkeypatch.setattr("gpu_driver.operations.conv.with_full_lanes", noted)
    model = convolution(code, dims, depth, taps, stride, filter_zero=filter_zero, adds=adds).model()
    rng = np.random.default_rng(1)
    inputs, output = [], model.main.operands[model.main.output_indexes[0]]
    for at in model.main.input_indexes:
        shape = model.main.operands[at].dimensions
        real = rng.standard_normal(shape).astype(np.float32)
        inputs.append(real if code == FLOAT else rng.integers(-128, 128, shape).astype(np.int8))
    results = []
    for device in (opencl_device, CpuDevice()):
        result = np.empty(output.dimensions, dtype_of(output.type))
        run(prepare(device, model), request(inputs, [result]))
        results.append(result)
    if opencl_device.profile.builds_chains:
        assert made[0].geometry.output_depth > depth
    if code == FLOAT:
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
    else:
        assert np.array_equal(results[0], results[1])
