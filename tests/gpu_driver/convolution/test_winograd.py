# SPDX-License-Identifier: Apache-2.0
"""Convolutions with fewer products: which are, their weights and tasks, and results beside sums in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.chain import images, launches
from gpu_driver.convolution import winograd
from gpu_driver.kernel import Kernel, Scratch
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operations.sliding_window import SlidingWindow
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.chain.tiles import Tiles
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

FLOAT, HALF, QUANT8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM
UNIT = 2.0**-24
"""Of a rounding of a float32."""


@dataclass(frozen=True)
class Layer:
    """image [batches, height, width, depth]; padding (left, right, top, bottom)."""

    image: tuple[int, int, int, int]
    depth: int
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    stride: int = 1
    dilation: int = 1
    taps: int = 3
    code: OperandCode = FLOAT
    activation: FuseCode = FuseCode.NONE
    residual: bool = False

    @property
    def output(self) -> tuple[int, int, int, int]:
        reach = (self.taps - 1) * self.dilation
        left, right, top, bottom = self.padding
        batches, height, width, _ = self.image
        down, across = height + top + bottom - reach, width + left + right - reach
        return batches, -(-down // self.stride), -(-across // self.stride), self.depth

    def drawn(self) -> Drawn:
        rng = np.random.default_rng(11)
        dtype = np.float16 if self.code == HALF else np.float32
        dims = (self.depth, self.taps, self.taps, self.image[3])
        filters = rng.standard_normal(dims) / np.sqrt(self.taps**2 * self.image[3])
        return Drawn(
            self,
            rng.standard_normal(self.image).astype(dtype),
            filters.astype(dtype),
            rng.standard_normal(self.depth).astype(dtype),
            rng.standard_normal(self.output).astype(dtype),
        )


@dataclass(frozen=True)
class Drawn:
    layer: Layer
    image: Array
    filters: Array
    bias: Array
    residual: Array

    def model(self) -> Model:
        layer, graph = self.layer, Graph()
        source = graph.input(layer.image, layer.code)
        added = graph.input(layer.output, layer.code) if layer.residual else 0
        output = graph.output(layer.output, layer.code)
        result = graph.temporary(layer.output, layer.code) if layer.residual else output
        activation = FuseCode.NONE if layer.residual else layer.activation
        numbers = map(graph.integer, (*layer.padding, layer.stride, layer.stride, activation))
        constants = (graph.constant(values, layer.code) for values in (self.filters, self.bias))
        rest = graph.flag(False), graph.integer(layer.dilation), graph.integer(layer.dilation)
        graph.operation(OperationCode.CONV_2D, [source, *constants, *numbers, *rest], result)
        if layer.residual:
            graph.operation(OperationCode.ADD, [result, added, graph.integer(layer.activation)], output)
        return graph.model()

    def run(self, device: Device) -> Array:
        result = np.empty(self.layer.output, self.image.dtype)
        inputs = [self.image, self.residual] if self.layer.residual else [self.image]
        run(prepare(device, self.model()), request(inputs, [result]))
        return result

    def expected(self) -> Array:
        """Return the sums in double precision."""
        sums = convolved(self.image, self.filters, self.bias, self.layer.padding)
        sums = sums + self.residual.astype(np.float64) if self.layer.residual else sums
        bounds = {FuseCode.RELU: (0, np.inf), FuseCode.RELU1: (-1, 1), FuseCode.RELU6: (0, 6)}
        return np.clip(sums, *bounds[self.layer.activation]) if self.layer.activation else sums


def convolved(image: Array, filters: Array, bias: Array, padding: tuple[int, int, int, int]) -> Array:
    left, right, top, bottom = padding
    wide = np.pad(image.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, filters.shape[1:3], (1, 2))
    products = np.einsum("byxiuv,ouvi->byxo", windows, filters.astype(np.float64), optimize=True)
    sums: Array = products + bias.astype(np.float64)
    return sums


def launch_of(model: Model, profile: DeviceProfile = CPU_PROFILE) -> Launch:
    lowering = Lowering(model, profile)
    launch = lowering.lower(0, lowering.static_inputs()).commands[0]
    assert isinstance(launch, Launch)
    return launch


def kinds(layer: Layer, profile: DeviceProfile = CPU_PROFILE) -> list[int]:
    return [step.kind for step in launch_of(layer.drawn().model(), profile).steps]


@pytest.fixture
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions, too."""
    monkeypatch.setattr(winograd, "LEAST_TILES", 1)
    monkeypatch.setattr(winograd, "LEAST_DEPTH", winograd.CHANNEL_BLOCK)
    monkeypatch.setattr(winograd, "LEAST_OUTPUTS", 1)
    monkeypatch.setattr(winograd, "LEAST_ROWS", 1)
    monkeypatch.setattr(winograd, "WORK_DEPTH", 2 * 32)


@pytest.mark.parametrize(
    "layer",
    [
        Layer((1, 14, 14, 64), 64),
        Layer((8, 56, 56, 64), 32, (0, 0, 0, 0)),
        Layer((1, 28, 28, 32), 40, activation=FuseCode.RELU6, residual=True),
        Layer((1, 28, 28, 64), 64, code=HALF),
    ],
    ids=str,
)
def test_many_tiles_and_channels_have_fewer_products(layer: Layer) -> None:
    assert kinds(layer)[0] == chain.Kind.WINOGRAD


@pytest.mark.parametrize(
    "layer",
    [
        Layer((1, 7, 7, 512), 512),
        Layer((8, 7, 7, 512), 512),
        Layer((1, 56, 56, 16), 64),
        Layer((1, 56, 56, 64), 16),
        Layer((1, 2, 130, 64), 64, (1, 1, 0, 1)),
        Layer((1, 57, 57, 64), 64, (0, 0, 0, 0), 2),
        Layer((1, 56, 56, 64), 64, (2, 2, 2, 2), 1, 2),
        Layer((1, 56, 56, 64), 64, (0, 0, 0, 0), taps=1),
        Layer((1, 56, 56, 64), 64, (2, 2, 2, 2), taps=5),
    ],
    ids=str,
)
def test_others_are_direct(layer: Layer) -> None:
    assert kinds(layer) == [chain.Kind.CONVOLVE]


def test_devices_without_chains_keep_their_kernels() -> None:
    launch = launch_of(Layer((1, 28, 28, 64), 64).drawn().model(), GPU_PROFILE)
    assert not launch.steps
    assert "winograd" not in launch.kernel.name


def test_only_chains_with_such_steps_have_the_kernel_and_memory_for_it() -> None:
    plain, with_some = (launch_of(Layer((1, 28, 28, depth), 64).drawn().model()) for depth in (16, 64))
    assert ("WINOGRAD", 0) in plain.kernel.defines
    assert ("WINOGRAD", 1) in with_some.kernel.defines
    tiles, places, staged_pixels, taps = 49, 36, 7, 9
    needs = staged_pixels * taps * 16, places * tiles * (64 + 32)
    for launch, elements in zip((plain, with_some), needs, strict=True):
        (work,) = [one for one in launch.arguments if isinstance(one, Scratch)]
        least = 4 * CPU_PROFILE.compute_units * elements
        assert least <= work.size_bytes <= 1.5 * least


def test_weights_of_the_outer_places_are_taps() -> None:
    filters = np.random.default_rng(0).standard_normal((40, 3, 3, 5)).astype(np.float32)
    packed = winograd.pack_weights(filters)
    assert packed.size == 36 * 5 * 48
    first, second = packed[: 36 * 5 * 32].reshape(36, 2, 5, 16), packed[36 * 5 * 32 :].reshape(36, 1, 5, 16)
    of_zero = (0.625 * 1.5) ** 2  # the product of the differences to the other points
    for place, taps in ((0, filters[:, 0, 0] / of_zero**2), (35, filters[:, 2, 2]), (5, filters[:, 0, 2] / of_zero)):
        np.testing.assert_allclose(first[place, 0], taps[:16].T, rtol=1e-6)
        np.testing.assert_allclose(first[place, 1], taps[16:32].T, rtol=1e-6)
        np.testing.assert_allclose(second[place, 0, :, :8], taps[32:].T, rtol=1e-6)
    assert not second[:, :, :, 8:].any()


@pytest.mark.parametrize("dims", [(3, 5, 9), (1, 4, 4), (2, 8, 3), (4, 1, 17)])
def test_pixels_of_tiles(dims: tuple[int, int, int]) -> None:
    batches, height, width = dims
    g = geometry(*dims)
    rows = [b * height + y for b in range(batches) for y in range(0, height, 4) for _ in range(0, width, 4)]
    last_rows = [
        b * height + min(y + 4, height) for b in range(batches) for y in range(0, height, 4) for _ in range(0, width, 4)
    ]
    assert winograd.tile_count(g) == len(rows)
    for first in range(len(rows)):
        for last in range(first + 1, len(rows) + 1):
            assert winograd.pixels_of(g, first, last) == (rows[first] * width, last_rows[last - 1] * width)


def geometry(batches: int, height: int, width: int, depth: int = 32) -> SlidingWindow:
    ends, filters = (height, width, depth, height, width, depth), (3, 3, 1, 1, 1, 1, 1, 1, 1, 1)
    return SlidingWindow(batches, *ends, *filters, nchw=False, activation=FuseCode.NONE)


@pytest.mark.parametrize("cores", [1, 2, 5, 16])
@pytest.mark.parametrize("dims", [(1, 56, 56, 64), (1, 14, 14, 256), (3, 30, 21, 72)])
def test_tasks_do_every_tile_of_every_channel_once(dims: tuple[int, int, int, int], cores: int) -> None:
    (step,) = launch_of(Layer(dims, dims[3]).drawn().model(), replace(CPU_PROFILE, compute_units=cores)).steps
    tiles, blocks = -(-winograd.tile_count(step.geometry) // 7), -(-dims[3] // 32)
    done = np.zeros((tiles, blocks), int)
    for task in chain.tasks_of(step, cores):
        done[slice(*task.x), slice(*task.y)] += 1
        assert task.pixels == winograd.pixels_of(
            step.geometry, task.x[0] * 7, min(task.x[1] * 7, winograd.tile_count(step.geometry))
        )
    assert (done == 1).all()


@pytest.mark.parametrize(
    "layer",
    [
        Layer((1, 8, 8, 16), 16),
        Layer((2, 13, 9, 40), 24),
        Layer((3, 7, 7, 33), 70, (0, 0, 0, 0)),
        Layer((1, 5, 31, 17), 33, (2, 0, 0, 1)),
        Layer((2, 6, 6, 64), 32, (0, 1, 3, 0)),
        Layer((1, 9, 4, 48), 16, (4, 4, 5, 5)),
        Layer((1, 3, 3, 20), 19, (0, 0, 0, 0)),
        Layer((1, 21, 22, 24), 40, activation=FuseCode.RELU),
        Layer((1, 21, 22, 24), 40, activation=FuseCode.RELU1),
        Layer((2, 10, 11, 32), 17, activation=FuseCode.RELU6, residual=True),
        Layer((1, 16, 16, 32), 32, residual=True),
        Layer((2, 13, 9, 40), 24, activation=FuseCode.RELU6, residual=True, code=HALF),
        Layer((1, 17, 18, 33), 41, (0, 1, 1, 0), code=HALF),
    ],
    ids=str,
)
@pytest.mark.usefixtures("all_sizes")
def test_results_are_those_of_double_precision(opencl_device: Device, layer: Layer) -> None:
    assert kinds(layer)[0] == chain.Kind.WINOGRAD
    drawn = layer.drawn()
    exact, tolerance = drawn.expected(), 2e-3 if layer.code == HALF else 1e-5
    np.testing.assert_allclose(drawn.run(opencl_device), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("layer", [Layer((1, 56, 56, 64), 64), Layer((1, 14, 14, 256), 256)], ids=str)
def test_errors_are_not_much_greater_than_those_of_the_direct_kernel(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, layer: Layer
) -> None:
    drawn, errors = layer.drawn(), []
    for least_depth in (winograd.LEAST_DEPTH, 1 << 30):
        monkeypatch.setattr(winograd, "LEAST_DEPTH", least_depth)
        errors.append(np.abs(drawn.run(opencl_device) - drawn.expected()))
    fewer_products, direct = errors
    assert np.sqrt((fewer_products**2).mean()) <= 2.5 * np.sqrt((direct**2).mean())
    assert fewer_products.max() <= 4 * direct.max()
    assert fewer_products.max() <= 9 * layer.image[3] * UNIT


@pytest.mark.parametrize(("queues", "rows"), [(1, 1), (1, 100), (3, 1), (8, 3), (64, 100)])
@pytest.mark.usefixtures("all_sizes")
def test_bits_do_not_depend_on_how_tiles_are_put_together(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, queues: int, rows: int
) -> None:
    drawn = Layer((2, 29, 31, 48), 88, residual=True).drawn()
    expected = drawn.run(opencl_device)
    launch_of_steps = launches._launch

    def simulated(steps: Any, memories: Any, device: DeviceProfile, tiles: Tiles, program: Kernel) -> Launch:
        return launch_of_steps(steps, memories, replace(device, compute_units=queues), tiles, program)

    monkeypatch.setattr(launches, "_launch", simulated)
    monkeypatch.setattr(winograd, "LEAST_ROWS", rows)
    monkeypatch.setattr(winograd, "MOST_ROWS", rows)
    assert np.array_equal(drawn.run(opencl_device), expected)


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
@pytest.mark.usefixtures("all_sizes")
def test_infinity_and_nan_spread_no_further_than_their_windows(opencl_device: Device, code: OperandCode) -> None:
    drawn = Layer((1, 18, 18, 32), 48, code=code).drawn()
    for place, value in (((0, 2, 3, 5), np.inf), ((0, 9, 9, 0), -np.inf), ((0, 14, 3, 31), np.nan)):
        drawn.image[place] = value
    with np.errstate(invalid="ignore"):
        expected = drawn.expected()
    result = drawn.run(opencl_device)
    assert not np.isfinite(expected).all()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
    tolerance = 2e-3 if code == HALF else 1e-5
    np.testing.assert_allclose(result, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.usefixtures("all_sizes")
def test_numbers_too_large_for_the_transforms(opencl_device: Device) -> None:
    drawn = Layer((1, 10, 10, 16), 16).drawn()
    drawn.image[0, 4, 4, 3] = 2e38
    drawn.image[0, 6, 4, 3] = -2e38
    expected = drawn.expected()
    assert np.abs(expected).max() < 3.4e38
    np.testing.assert_allclose(drawn.run(opencl_device), expected, rtol=1e-5, atol=2e33)


@pytest.mark.usefixtures("all_sizes")
def test_weights_that_are_not_finite(opencl_device: Device) -> None:
    drawn = Layer((1, 11, 11, 16), 20, (0, 0, 0, 0)).drawn()
    drawn.filters[3, 1, 1, 2], drawn.filters[7, 0, 2, 4], drawn.filters[9, 2, 2, 1] = np.inf, np.nan, 1e38
    with np.errstate(invalid="ignore"):
        expected = drawn.expected().astype(np.float32)
    result = drawn.run(opencl_device)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("least_flops", [1, 1 << 60], ids=["image_by_image", "together"])
@pytest.mark.usefixtures("all_sizes")
def test_several_layers_of_several_images(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, least_flops: int
) -> None:
    monkeypatch.setattr(images, "LEAST_FLOPS", least_flops)
    rng, graph, dims = np.random.default_rng(2), Graph(), (3, 16, 16, 32)
    source = last = graph.input(dims)
    image = exact = rng.standard_normal(dims).astype(np.float32)
    depths = (64, 24, 32)
    for depth in depths:
        filters = (rng.standard_normal((depth, 3, 3, dims[3])) / np.sqrt(9 * dims[3])).astype(np.float32)
        bias = rng.standard_normal(depth).astype(np.float32)
        dims = (*dims[:3], depth)
        output = graph.output(dims) if depth is depths[-1] else graph.temporary(dims)
        numbers = map(graph.integer, (1, 1, 1, FuseCode.RELU))
        graph.operation(OperationCode.CONV_2D, [last, graph.constant(filters), graph.constant(bias), *numbers], output)
        last, exact = output, np.maximum(convolved(exact, filters, bias, (1, 1, 1, 1)), 0)
    assert source == 0
    launch = launch_of(graph.model())
    assert [step.kind for step in launch.steps] == [chain.Kind.WINOGRAD] * 3
    assert launch.repeats == (3 if least_flops == 1 else 1)
    result = np.empty(dims, np.float32)
    run(prepare(opencl_device, graph.model()), request([image], [result]))
    np.testing.assert_allclose(result, exact, atol=2e-5, rtol=2e-5)
