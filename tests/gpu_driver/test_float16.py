# SPDX-License-Identifier: Apache-2.0
"""float16 by the kernels of float32: every operation rounds its result once, to the nearest half.

Data are small integers, or such over a power of two, so that float32 sums are exact in any order: what is right is
computed in float64 and rounded by numpy, and results are compared bit by bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from gpu_driver import chain
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Dimensions

HALF = OperandCode.TENSOR_FLOAT16
Real = npt.NDArray[np.float64]
Half = npt.NDArray[np.float16]


def rounded(values: Real) -> Half:
    """Values as float16 holds them; what is too large becomes infinity."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def same_windows(x: Real, taps: int, stride: int, dilation: int) -> list[Real]:
    """Return the inputs under each tap of a square filter, [batches, out height, out width, depth], padding SAME."""
    span = (taps - 1) * dilation + 1
    pads = [(0, 0)]
    for size in x.shape[1:3]:
        total = max(0, (-(-size // stride) - 1) * stride + span - size)
        pads.append((total // 2, total - total // 2 + stride))
    padded = np.pad(x, [*pads, (0, 0)])
    height, width = (-(-size // stride) for size in x.shape[1:3])
    return [
        padded[:, y : y + height * stride : stride, z : z + width * stride : stride][:, :height, :width]
        for y in range(0, span, dilation)
        for z in range(0, span, dilation)
    ]


class Network:
    """Operations one after the other, and what numpy makes of the same data meanwhile."""

    def __init__(self, dims: Dimensions, seed: int, most: int = 8) -> None:
        self.graph = Graph()
        self._rng = np.random.default_rng(seed)
        self.source = rounded(self.draw(dims, most))
        self.last = self.graph.input(dims, HALF)
        self.value, self.exact = self.source, self.source.astype(np.float64)

    def draw(self, dims: Dimensions, most: int, unit: float = 1.0) -> Real:
        return self._rng.integers(-most, most, dims, endpoint=True) * unit

    def constant(self, values: Real) -> int:
        return self.graph.constant(rounded(values), HALF)

    def convolve(
        self,
        depth: int,
        taps: int = 1,
        stride: int = 1,
        dilation: int = 1,
        *,
        most: int = 4,
        is_output: bool = False,
    ) -> None:
        """CONV_2D, without an activation, so that an ADD can follow."""
        x = self.value.astype(np.float64)
        weights, bias = self.draw((depth, taps, taps, x.shape[-1]), most), self.draw((depth,), 50)
        parts = same_windows(x, taps, stride, dilation)
        sums = sum(part @ weights[:, i // taps, i % taps].T for i, part in enumerate(parts)) + bias
        numbers = [PaddingCode.SAME, stride, stride, FuseCode.NONE]
        self._add(OperationCode.CONV_2D, weights, bias, numbers, dilation, sums, is_output)

    def depthwise(self, taps: int = 3, stride: int = 1, dilation: int = 1, *, is_output: bool = False) -> None:
        x = self.value.astype(np.float64)
        weights, bias = self.draw((1, taps, taps, x.shape[-1]), 2, 0.25), self.draw((x.shape[-1],), 50)
        parts = same_windows(x, taps, stride, dilation)
        sums = sum(part * weights[0, i // taps, i % taps] for i, part in enumerate(parts)) + bias
        numbers = [PaddingCode.SAME, stride, stride, 1, FuseCode.NONE]
        self._add(OperationCode.DEPTHWISE_CONV_2D, weights, bias, numbers, dilation, sums, is_output)

    def plus(self, other: int, value: Half, *, is_output: bool = False) -> None:
        """ADD, with the convolution before rounded by itself."""
        output = self._operand(self.value.shape, is_output)
        self.graph.operation(OperationCode.ADD, [self.last, other, self.graph.integer(FuseCode.NONE)], output)
        self.last, self.exact = output, self.value.astype(np.float64) + value
        self.value = rounded(self.exact)

    def fully(self, units: int) -> None:
        x = self.value.astype(np.float64)
        weights, bias = self.draw((units, x.shape[-1]), 2), self.draw((units,), 50)
        self.exact = x @ weights.T + bias
        self.value = rounded(self.exact)
        constants = self.constant(weights), self.constant(bias), self.graph.integer(FuseCode.NONE)
        output = self._operand(self.value.shape, True)
        self.graph.operation(OperationCode.FULLY_CONNECTED, [self.last, *constants], output)

    def check(self, device: Device) -> None:
        result = np.empty(self.value.shape, np.float16)
        run(prepare(device, self.graph.model()), request([self.source], [result]))
        assert np.isfinite(self.value).all()
        assert (self.value != self.exact).any(), "nothing was rounded"
        np.testing.assert_array_equal(result, self.value)

    def steps(self, cores: int = 2) -> list[int]:
        """Return the kinds of the steps of the one launch that it must be."""
        lowering = Lowering(self.graph.model(), replace(CPU_PROFILE, compute_units=cores))
        (launch,) = lowering.lower(0, lowering.static_inputs()).commands
        assert isinstance(launch, Launch)
        return [step.kind for step in launch.steps]

    def _add(
        self, code: int, weights: Real, bias: Real, numbers: list[int], dilation: int, sums: Real, is_output: bool
    ) -> None:
        inputs = [self.last, self.constant(weights), self.constant(bias), *map(self.graph.integer, numbers)]
        if dilation > 1:
            inputs += [self.graph.flag(False), *map(self.graph.integer, (dilation, dilation))]
        self.exact, self.value = sums, rounded(sums)
        output = self._operand(self.value.shape, is_output)
        self.graph.operation(OperationCode(code), inputs, output)
        self.last = output

    def _operand(self, dims: Dimensions, is_output: bool) -> int:
        return self.graph.output(dims, HALF) if is_output else self.graph.temporary(dims, HALF)


@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride", "dilation"),
    [
        *[((1, 28, 28, 96), 128, 1, 1, 1), ((1, 14, 14, 576), 96, 1, 1, 1), ((1, 7, 7, 960), 320, 1, 1, 1)],
        *[((1, 9, 9, 144), 16, 1, 1, 1), ((2, 9, 10, 96), 24, 1, 1, 1), ((1, 3, 3, 200), 40, 1, 1, 1)],
        *[((1, 1, 1, 1280), 33, 1, 1, 1), ((1, 1, 1, 50000), 17, 1, 1, 1), ((1, 5, 7, 8000), 40, 1, 1, 1)],
        *[((2, 33, 35, 3), 32, 3, 2, 1), ((1, 19, 23, 24), 40, 3, 1, 2), ((1, 16, 17, 20), 33, 5, 1, 1)],
        *[((1, 15, 15, 300), 40, 3, 2, 1), ((1, 4, 5, 7), 9, 3, 1, 1), ((1, 12, 12, 16), 8, 1, 2, 1)],
        *[((1, 9, 17, 900), 33, 3, 2, 1), ((1, 30, 8, 4), 17, 3, 3, 1)],
    ],
)
def test_convolution(
    opencl_device: Device, dims: Dimensions, depth: int, taps: int, stride: int, dilation: int
) -> None:
    network = Network(dims, 1, int(4500 / (taps * dims[-1] ** 0.5)))
    network.convolve(depth, taps, stride, dilation, is_output=True)
    assert network.steps() == [chain.Kind.CONVOLVE]
    network.check(opencl_device)


@pytest.mark.parametrize(("taps", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2)])
@pytest.mark.parametrize("depth", [5, 16, 40, 96])
def test_depthwise_convolution(opencl_device: Device, depth: int, taps: int, stride: int, dilation: int) -> None:
    network = Network((1, 15, 17, depth), 2, 2000)
    network.depthwise(taps, stride, dilation, is_output=True)
    assert network.steps() == [chain.Kind.DEPTHWISE]
    network.check(opencl_device)


@pytest.mark.parametrize("depth", [12, 16, 24, 40, 96])
@pytest.mark.parametrize("dims", [(1, 15, 15, 64), (1, 1, 1, 700)])
def test_a_sum_is_rounded_before_a_residual_is_added(opencl_device: Device, dims: Dimensions, depth: int) -> None:
    """As if ADD were an operation of its own: 2049 becomes 2048, and with 1 more still is."""
    network = Network(dims, 3, 40)
    network.convolve(depth)
    skipped, value = network.last, network.value
    network.convolve(depth, most=1)
    network.plus(skipped, value, is_output=True)
    assert network.steps() == [chain.Kind.CONVOLVE, chain.Kind.CONVOLVE]
    network.check(opencl_device)


def test_a_sum_of_winograd_is_rounded_before_a_residual_is_added(opencl_device: Device) -> None:
    """Its sums of integers are not exact, so that some come over the middle between two halves."""
    network = Network((1, 24, 24, 32), 3, 40)
    network.convolve(32)
    skipped, value = network.last, network.value
    network.convolve(32, 3, most=1)
    rounded_once = rounded(network.exact + value)
    network.plus(skipped, value, is_output=True)
    assert network.steps() == [chain.Kind.CONVOLVE, chain.Kind.WINOGRAD]
    result = np.empty(rounded_once.shape, np.float16)
    run(prepare(opencl_device, network.graph.model()), request([network.source], [result]))
    np.testing.assert_allclose(result, network.value, rtol=2**-9, atol=2)
    assert np.sum(result != network.value) < np.sum(result != rounded_once) / 2


@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride", "depthwise_stride"),
    [
        *[((1, 28, 28, 16), 96, 1, 1, 1), ((1, 57, 61, 24), 144, 1, 1, 2), ((2, 65, 67, 3), 32, 3, 2, 1)],
        *[((1, 30, 7, 5), 16, 3, 1, 1), ((1, 28, 230, 8), 48, 1, 1, 1)],
    ],
)
def test_what_lies_between_joined_convolutions_is_rounded(
    opencl_device: Device, dims: Dimensions, depth: int, taps: int, stride: int, depthwise_stride: int
) -> None:
    network = Network(dims, 4, 60)
    network.convolve(depth, taps, stride, most=8)
    network.depthwise(3, depthwise_stride, is_output=True)
    assert network.steps() == [chain.Kind.EXPANDED]
    network.check(opencl_device)


@pytest.mark.parametrize(("rows", "depth", "units"), [(1, 1024, 1000), (64, 512, 70), (5, 300, 33), (1, 20000, 16)])
def test_fully_connected(opencl_device: Device, rows: int, depth: int, units: int) -> None:
    network = Network((rows, depth), 5, int(6000 / depth**0.5))
    network.fully(units)
    assert network.steps() == [chain.Kind.CONVOLVE]
    network.check(opencl_device)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(17, 33, 50), (64, 64, 64), (3, 20, 7)])
def test_batch_matmul(opencl_device: Device, rows: int, columns: int, depth: int, transposed: bool) -> None:
    rng = np.random.default_rng(6)
    left, right = rng.integers(-40, 40, (2, rows, depth)), rng.integers(-40, 40, (2, depth, columns))
    graph = Graph()
    fed = left.transpose(0, 2, 1) if transposed else left
    sources = graph.input(fed.shape, HALF), graph.input(right.shape, HALF)
    output = graph.output((2, rows, columns), HALF)
    graph.operation(OperationCode.BATCH_MATMUL, [*sources, graph.flag(transposed), graph.flag(False)], output)
    result = np.empty((2, rows, columns), np.float16)
    inputs = [np.ascontiguousarray(one.astype(np.float16)) for one in (fed, right)]
    run(prepare(opencl_device, graph.model()), request(inputs, [result]))
    np.testing.assert_array_equal(result, (left @ right).astype(np.float16))


def every_half() -> Half:
    """Return all finite numbers, subnormal ones too."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves[np.isfinite(halves)]


def of_two(code: OperationCode, first: Half, second: Half, device: Device) -> Half:
    graph = Graph()
    sources = graph.input(first.shape, HALF), graph.input(second.shape, HALF)
    graph.operation(code, [*sources, graph.integer(FuseCode.NONE)], graph.output(first.shape, HALF))
    result = np.empty(first.shape, np.float16)
    run(prepare(device, graph.model()), request([first, second], [result]))
    return result


def test_every_number_is_read_and_written(opencl_device: Device) -> None:
    halves = every_half()
    np.testing.assert_array_equal(of_two(OperationCode.ADD, halves, np.zeros_like(halves), opencl_device), halves)


def test_products_are_rounded_to_the_nearest(opencl_device: Device) -> None:
    """Also to subnormal numbers, and to infinity; float64 holds the products of halves exactly."""
    halves = every_half()
    others = np.random.default_rng(7).permutation(halves)
    expected = rounded(halves.astype(np.float64) * others)
    assert np.isinf(expected).any()
    np.testing.assert_array_equal(of_two(OperationCode.MUL, halves, others, opencl_device), expected)
