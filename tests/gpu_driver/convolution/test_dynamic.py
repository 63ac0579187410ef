# SPDX-License-Identifier: Apache-2.0
"""Products on bytes that are made in every run: which are, how, and results beside sums in double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.convolution import dynamic
from gpu_driver.device_profile import DeviceProfile
from gpu_driver.discovery import dot_products
from gpu_driver.discovery.host_cpu import host_cpu
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.dynamic_quantization import with_permission
from nn_runtime.hal.types import ExecutionPreference, Priority
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.convolution.test_winograd import convolved
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE, has_instructions
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

VNNI = frozenset({"x86_vnni"})
ALLOWED = replace(CPU_PROFILE, features=VNNI, quantizes_inputs=True)
STEPS = [chain.Kind.RANGES, chain.Kind.TO_BYTES, chain.Kind.MULTIPLY_BYTES]
STEPS_BY_ROWS = [chain.Kind.BYTES_OF_ROWS, chain.Kind.MULTIPLY_BYTES]


class Layer(NamedTuple):
    """image [batches, height, width, depth]; padding on every side. FULLY_CONNECTED if taps is 0: image [rows, depth].

    negative: whether a NEG follows, which is not a part of a convolution; residual: whether something is added before.
    """

    image: tuple[int, ...]
    depth: int
    taps: int = 0
    padding: int = 0
    stride: int = 1
    dilation: tuple[int, int] = (1, 1)
    activation: FuseCode = FuseCode.NONE
    residual: bool = False
    negative: bool = False

    @property
    def output(self) -> tuple[int, ...]:
        if not self.taps:
            return self.image[0], self.depth
        batches, *sizes, _ = self.image
        reached = (
            size + 2 * self.padding - (self.taps - 1) * by for size, by in zip(sizes, self.dilation, strict=True)
        )
        return batches, *(-(-size // self.stride) for size in reached), self.depth

    @property
    def goes_by_rows(self) -> bool:
        """Whether pixels have scales of their own: where a product reads but one."""
        return not self.taps or (self.taps == self.stride == 1 and not self.padding)


class Drawn:
    """A layer with random numbers; weights are whole numbers by a scale of each channel."""

    def __init__(self, layer: Layer, code: OperandCode = OperandCode.TENSOR_FLOAT32) -> None:
        rng = np.random.default_rng(5)
        self.layer, self.code = layer, code
        dims = (layer.depth, *([layer.taps] * 2 if layer.taps else []), layer.image[-1])
        self.integers = rng.integers(-127, 128, dims)
        self.integers.reshape(layer.depth, -1)[:, 0] = 127
        self.scales = rng.uniform(0.001, 0.01, layer.depth).astype(np.float32)
        self.bias = rng.standard_normal(layer.depth).astype(np.float32)
        self.image = (rng.standard_normal(layer.image) + 0.5).astype(np.float32)
        self.residual = rng.standard_normal(layer.output).astype(np.float32)

    @property
    def weights(self) -> Array:
        return (self.integers * self.scales.reshape(-1, *[1] * (self.integers.ndim - 1))).astype(np.float32)

    def model(self) -> Model:
        layer, graph = self.layer, Graph()
        source = graph.input(layer.image, self.code)
        added = graph.input(layer.output, self.code) if layer.residual else None
        constants = (graph.constant(one.astype(dtype_of(self.code)), self.code) for one in (self.weights, self.bias))
        operands = [source, *constants]
        if layer.taps:
            paddings, strides = [layer.padding] * 4, [layer.stride] * 2
            operands += [graph.integer(number) for number in (*paddings, *strides)]
        behind = [
            *([(OperationCode.ADD, [added, graph.integer(layer.activation)])] if added is not None else []),
            *([(OperationCode.NEG, [])] if layer.negative else []),
        ]
        operands.append(graph.integer(FuseCode.NONE if layer.residual else layer.activation))
        if layer.taps:
            operands += [graph.flag(False), *(graph.integer(number) for number in reversed(layer.dilation))]
        code = OperationCode.CONV_2D if layer.taps else OperationCode.FULLY_CONNECTED
        made = [graph.temporary(layer.output, self.code) for _ in behind]
        results = [*made, graph.output(layer.output, self.code)]
        graph.operation(code, operands, results[0])
        for (follower, others), before, after in zip(behind, results[:-1], results[1:], strict=True):
            graph.operation(follower, [before, *others], after)
        return graph.model()

    def run(self, device: Device, *, allowed: bool = True) -> Array:
        prepared = allowing(device, self.model()) if allowed else prepare(device, self.model())
        result = np.full(self.layer.output, np.nan, dtype_of(self.code))
        inputs = [self.image, self.residual] if self.layer.residual else [self.image]
        run(prepared, request([one.astype(result.dtype) for one in inputs], [result]))
        return result

    def expected(self, image: Array) -> Array:
        """Return the sums in double precision, for an image as it is after quantisation, or before."""
        layer, weights = self.layer, self.weights
        if layer.taps:
            across, down = layer.dilation[1], layer.dilation[0]
            wide = np.zeros((layer.depth, (layer.taps - 1) * down + 1, (layer.taps - 1) * across + 1, image.shape[-1]))
            wide[:, ::down, ::across] = weights
            sums = convolved(image, wide, self.bias, (layer.padding,) * 4)[:, :: layer.stride, :: layer.stride]
        else:
            sums = image.astype(np.float64) @ weights.astype(np.float64).T + self.bias
        sums = sums + self.residual if layer.residual else sums
        sums = np.maximum(sums, 0) if layer.activation == FuseCode.RELU else sums
        return -sums if layer.negative else sums

    def quantized(self) -> Array:
        """Return the image as its bytes stand for it: a scale and a zero point for each image, or row."""
        axes = -1 if self.layer.goes_by_rows else tuple(range(1, self.image.ndim))
        low = np.minimum(self.image.min(axes, keepdims=True), 0) / np.float32(255)
        high = np.maximum(self.image.max(axes, keepdims=True), 0) / np.float32(255)
        scale = high - low
        zero = np.rint(-low * np.float32(255) / scale)
        inverse = (np.float32(1) / scale).astype(np.float64)
        codes = np.clip(np.rint((self.image * inverse + zero).astype(np.float32)), 0, 255)
        quantized: Array = (codes - zero) * scale.astype(np.float64)
        return quantized


def allowing(device: Device, model: Model) -> PreparedModel:
    how = ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
    return device.prepare_model_with_attributes(model, *how, with_permission((), True))


def kinds(model: Model, profile: DeviceProfile = ALLOWED) -> list[int]:
    lowering = Lowering(model, profile)
    launches = lowering.lower(0, lowering.static_inputs()).commands
    return [step.kind for launch in launches if isinstance(launch, Launch) for step in launch.steps]


LAYERS = [
    Layer((1, 8, 8, 16), 32, 3, 1),
    Layer((2, 9, 7, 20), 40, 3, 1, activation=FuseCode.RELU),
    Layer((1, 8, 8, 3), 33, 3, 1, 2),
    Layer((3, 5, 5, 64), 48, 1, residual=True, activation=FuseCode.RELU),
    Layer((1, 14, 14, 24), 17, 5, 2, 2, negative=True),
    Layer((2, 11, 13, 8), 16, 3, 0, 2, residual=True, negative=True),
    Layer((1, 9, 9, 16), 20, 1, 0, 2),
    Layer((1, 10, 6, 5), 24, 3, 1, 1, (2, 1)),
    Layer((2, 12, 13, 6), 20, 3, 2, 1, (2, 3)),
    Layer((1, 9, 15, 16), 40, 3, 0, 2, (1, 4)),
    Layer((1, 1, 23, 40), 50, 1),
    Layer((4, 1, 1, 30), 70, 1),
    Layer((1, 1, 1, 83), 130, 1, residual=True),
    Layer((1, 64), 64),
    Layer((3, 31), 40, activation=FuseCode.RELU),
    Layer((50, 128), 33, negative=True),
    Layer((40, 9000), 16),
    Layer((2, 70, 3, 64), 32, 3, 30, 64),  # windows that lie beside the image
    Layer((3, 5, 4, 16), 24, 3, 2, 7),
]


@pytest.fixture(params=[one for one in dot_products.FEATURES.values() if one], ids=list(dot_products.FEATURES))
def form(request: pytest.FixtureRequest, opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every form of products of bytes in turn, as if the device had no better one."""
    asked: int = request.param
    if not (opencl_device.profile.builds_chains and has_instructions(asked, host_cpu())):
        pytest.skip("not a form for this device or this processor")
    monkeypatch.setattr(DeviceProfile, "dot4", asked)
    return asked


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_sums_are_those_of_the_bytes(opencl_device: Device, layer: Layer) -> None:
    drawn = Drawn(layer)
    expected = drawn.expected(drawn.quantized())
    np.testing.assert_allclose(drawn.run(opencl_device), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (3, 3), (2, 4)])
@pytest.mark.parametrize("layer", [LAYERS[1], LAYERS[3], LAYERS[5], Layer((200, 64), 150, negative=True)], ids=str)
def test_other_numbers_of_cores_give_the_same(
    opencl_device: Device, layer: Layer, groups: int, queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Drawn(layer)
    plain = drawn.run(opencl_device)
    simulate_groups(monkeypatch, groups, queues)
    assert np.array_equal(drawn.run(opencl_device), plain)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_nobody_makes_bytes_unasked(opencl_device: Device, layer: Layer) -> None:
    drawn = Drawn(layer)
    expected = drawn.expected(drawn.image)
    result = drawn.run(opencl_device, allowed=False)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layer", [Layer((2, 6, 6, 8), 16, 3, 1), Layer((9, 40), 16)], ids=str)
def test_what_is_no_number_spoils_its_image_alone(opencl_device: Device, layer: Layer, wrong: float) -> None:
    drawn = Drawn(layer)
    plain = drawn.run(opencl_device)
    drawn.image.reshape(layer.image[0], -1)[1, 7] = wrong
    result = drawn.run(opencl_device)
    assert np.isnan(result[1]).all()
    assert np.array_equal(np.delete(result, 1, 0), np.delete(plain, 1, 0))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("factor", [0.0, 1e-42, 1e-30, 1e30, 3e38])
@pytest.mark.parametrize("layer", [Layer((1, 6, 6, 8), 16, 3, 1), Layer((9, 40), 16)], ids=str)
def test_numbers_of_every_size(opencl_device: Device, layer: Layer, factor: float) -> None:
    drawn = Drawn(layer)
    drawn.bias[:] = 0
    drawn.image = (np.sign(drawn.image) * np.abs(drawn.image).clip(0, 1) * np.float32(factor)).astype(np.float32)
    drawn.scales[:] = 1e-4  # sums stay finite
    expected = drawn.expected(drawn.quantized()) if factor > 1e-40 else np.zeros(layer.output)
    np.testing.assert_allclose(
        drawn.run(opencl_device), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max() + 1e-40
    )


def test_a_chain_of_layers(opencl_device: Device) -> None:
    """Two products of the same images, one after the other, and a depthwise convolution of real numbers between."""
    rng = np.random.default_rng(1)
    dims = (1, 12, 12, 32)

    def weights(*shape: int) -> Array:
        integers = rng.integers(-127, 128, shape)
        integers.reshape(shape[0], -1)[:, 0] = 127
        return (integers * np.float32(0.004)).astype(np.float32)

    graph = Graph()
    source = graph.input(dims)
    for at in range(4):
        result = graph.output(dims) if at == 3 else graph.temporary(dims)
        filters = weights(1, 3, 3, 32) if at == 1 else weights(32, 3, 3, 32)
        rest = [graph.integer(number) for number in (1, 1, 1, 1, 1, 1, *([1] if at == 1 else []), FuseCode.RELU)]
        code = OperationCode.DEPTHWISE_CONV_2D if at == 1 else OperationCode.CONV_2D
        constants = [graph.constant(filters), graph.constant(np.zeros(32, np.float32))]
        graph.operation(code, [source, *constants, *rest], result)
        source = result
    data = rng.standard_normal(dims).astype(np.float32)
    results = [np.empty(dims, np.float32) for _ in range(2)]
    both = allowing(opencl_device, graph.model()), prepare(opencl_device, graph.model())
    for prepared, result in zip(both, results, strict=True):
        for _ in range(3):
            run(prepared, request([data], [result]))
    error = np.abs(results[0] - results[1]).max() / np.abs(results[1]).max()
    assert 0 < error < 0.02 if opencl_device.profile.dot4 else error == 0


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_images_take_three_steps_and_rows_two(layer: Layer) -> None:
    steps = STEPS_BY_ROWS if layer.goes_by_rows else STEPS
    assert kinds(Drawn(layer).model())[: len(steps)] == steps


@pytest.mark.parametrize(
    "profile",
    [
        replace(ALLOWED, quantizes_inputs=False),
        replace(ALLOWED, features=frozenset()),
        replace(ALLOWED, type=GPU_PROFILE.type),
    ],
    ids=["not asked", "no instructions", "GPU"],
)
def test_others_have_real_numbers(profile: DeviceProfile) -> None:
    assert not set(kinds(Drawn(LAYERS[0]).model(), profile)) & set(STEPS)


def test_half_numbers_and_long_sums_stay_as_they_are() -> None:
    half = Drawn(LAYERS[0], OperandCode.TENSOR_FLOAT16)
    long = Drawn(Layer((1, 70_000), 4))
    assert not (set(kinds(half.model())) | set(kinds(long.model()))) & {*STEPS, *STEPS_BY_ROWS}


@pytest.mark.parametrize("layer", [Layer((1, 8, 8, 16), 32, 3, 1), Layer((9, 40), 16)], ids=str)
def test_what_several_products_read_becomes_bytes_once(layer: Layer) -> None:
    """Two layers of other weights read the input, a third the input as well, but with its own padding or activation."""
    graph = Graph()
    source = graph.input(layer.image)
    others = layer._replace(padding=0) if layer.taps else layer._replace(activation=FuseCode.RELU)
    for one in (layer, layer, others):
        drawn = Drawn(one)
        constants = [graph.constant(drawn.weights), graph.constant(drawn.bias)]
        window = [graph.integer(number) for number in ([one.padding] * 4 + [1, 1] if one.taps else [])]
        code = OperationCode.CONV_2D if one.taps else OperationCode.FULLY_CONNECTED
        operands = [source, *constants, *window, graph.integer(one.activation)]
        graph.operation(code, operands, graph.output(one.output))
    found = kinds(graph.model())
    assert found.count(chain.Kind.MULTIPLY_BYTES) == 3
    assert found.count(chain.Kind.TO_BYTES) == (2 if layer.taps else 0)
    assert found.count(chain.Kind.RANGES) == (1 if layer.taps else 0)
    assert found.count(chain.Kind.BYTES_OF_ROWS) == (0 if layer.taps else 1)


def test_tiles_of_the_processor_are_not_for_it() -> None:
    lowering = Lowering(Drawn(LAYERS[0]).model(), replace(ALLOWED, features=frozenset({"x86_amx", "x86_vnni"})))
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    assert ("DOT4", dot_products.AVX512_VNNI) in launch.kernel.defines


# Weights


@pytest.mark.parametrize("by_channel", [True, False])
def test_bytes_are_found_again(by_channel: bool) -> None:
    rng = np.random.default_rng(2)
    integers = rng.integers(-100, 101, (24, 3, 3, 7))
    integers[(slice(None) if by_channel else 5, 1, 2, 3)] = -127
    scales = rng.uniform(1e-6, 10, (24, 1, 1, 1)).astype(np.float32) if by_channel else np.float32(0.0123)
    if by_channel:
        integers[4] = 0
    found = dynamic.as_bytes(*[(integers * scales).astype(np.float32)] * 2)
    assert found is not None
    assert np.array_equal(found.weights, integers)
    nonzero = integers.reshape(24, -1).any(axis=1)
    np.testing.assert_allclose(found.scales[nonzero], np.broadcast_to(scales, (24, 1, 1, 1)).reshape(-1)[nonzero], 1e-6)


@pytest.mark.parametrize(
    "weights",
    [
        np.random.default_rng(3).standard_normal((8, 5)),
        np.full((8, 5), np.nan),
        np.full((8, 5), np.inf),
        np.full((8, 5), 1e-45),
        np.arange(40.0).reshape(8, 5) + 1000,
    ],
    ids=["random", "nan", "infinite", "too small", "too fine"],
)
def test_others_were_no_bytes(weights: Array) -> None:
    assert dynamic.as_bytes(*[weights.astype(np.float32)] * 2) is None


@pytest.mark.parametrize(("by_taps", "shape"), [(False, (2, 2, 4, 16, 4)), (True, (2, 6, 2, 16, 4))])
def test_packed_weights(by_taps: bool, shape: tuple[int, ...]) -> None:
    integers = np.random.default_rng(4).integers(-127, 128, (20, 2, 3, 5)).astype(np.int8)
    packed = dynamic.pack_weights(integers, by_taps=by_taps)
    assert packed.shape == shape
    for channel, at in np.ndindex(20, shape[1]):
        expected = integers[channel].reshape(shape[1], -1)[at]
        found = packed[channel // 16, at, :, channel % 16].reshape(-1)
        assert np.array_equal(found[: expected.size], expected)
        assert not found[expected.size :].any()
    assert not packed[1, :, :, 4:].any()
