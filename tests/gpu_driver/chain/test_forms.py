# SPDX-License-Identifier: Apache-2.0
"""Products of bytes in every form that this processor has, not only its best: the same bits as the CPU driver's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.convolution import packing, product
from gpu_driver.convolution.float_rounding import FloatSearch
from gpu_driver.device_profile import DeviceProfile
from gpu_driver.discovery import dot_products
from gpu_driver.discovery.host_cpu import host_cpu
from nn_runtime.codes import OperationCode
from nn_runtime.devices import find_device
from tests.gpu_driver.drawn import QUANT8, SIGNED, Network, inverted_residuals
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import has_instructions
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode
    from nn_runtime.operand import Dimensions

CODES = pytest.mark.parametrize("code", [QUANT8, SIGNED], ids=["quant8", "signed"])


@pytest.fixture(params=[0, *dot_products.FEATURES.values()], ids=["floats", *dot_products.FEATURES])
def form(request: pytest.FixtureRequest, opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every form in turn, as if the device had no better one."""
    asked: int = request.param
    if asked and not (opencl_device.profile.builds_chains and has_instructions(asked, host_cpu())):
        pytest.skip("not a form for this device or this processor")
    monkeypatch.setattr(DeviceProfile, "dot4", asked)
    return asked


def compare(device: Device, network: Network) -> None:
    model, source = network.graph.model(), network.data()
    results = []
    for one in (find_device("nnapi-reference").hal, device):
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(one, model), request([source], results[-1:]))  # type: ignore[arg-type]
    assert np.array_equal(*results)


@CODES
@pytest.mark.parametrize("batches", [1, 2])
def test_blocks_of_convolutions(form: int, opencl_device: Device, code: OperandCode, batches: int) -> None:
    compare(opencl_device, inverted_residuals(code, batches))


@CODES
def test_what_floats_cannot_round_is_rounded_by_integers(
    form: int, opencl_device: Device, code: OperandCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FloatSearch.result
    monkeypatch.setattr(FloatSearch, "result", lambda self: replace(one := found(self), exact=np.zeros_like(one.exact)))
    monkeypatch.setattr(product, "addition_by_floats", lambda *_: {})
    compare(opencl_device, inverted_residuals(code))


@CODES
def test_factors_of_two_floats(
    form: int, opencl_device: Device, code: OperandCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("_nearest", "_neighbours"):
        monkeypatch.setattr(FloatSearch, one, lambda *_: ())
    compare(opencl_device, inverted_residuals(code))


@CODES
@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride"),
    [
        *[((1, 7, 7, 320), 200, 1, 1), ((1, 1, 1, 83), 45, 1, 1), ((1, 1, 1, 640), 1001, 1, 1)],
        *[((1, 1, 1, 4), 16, 1, 1), ((1, 1, 1, 20), 33, 1, 1), ((1, 1, 1, 6004), 72, 1, 1)],
        *[((1, 14, 14, 33), 24, 1, 1), ((2, 15, 23, 5), 16, 3, 2), ((1, 9, 30, 48), 40, 3, 1)],
        *[
            ((1, 3, 5, 5000), 17, 1, 1),
            ((1, 40, 40, 32), 96, 1, 1),
            ((1, 6, 6, 260), 33, 3, 1),
            ((1, 4, 6, 530), 33, 3, 1),
        ],
        *[
            ((2, 23, 60, 3), 24, 3, 2),
            ((1, 20, 41, 3), 32, 7, 2),
            ((2, 12, 33, 7), 48, 5, 1),
            ((1, 9, 20, 64), 50, 3, 1),
        ],
        *[
            ((2, 9, 14, 5), 20, 3, 1),
            ((1, 7, 28, 3), 33, 5, 2),
            ((2, 5, 7, 24), 40, 7, 1),
            ((1, 9, 21, 8), 24, 3, 3),
            ((1, 5, 16, 4), 33, 3, 1),
        ],
        *[((1, 9, 20, 8), 3, 3, 1), ((2, 5, 12, 40), 2, 5, 2), ((1, 3, 16, 70), 1, 9, 1)],  # neighbours fill the lanes
    ],
)
def test_convolutions(
    form: int, opencl_device: Device, code: OperandCode, dims: Dimensions, depth: int, taps: int, stride: int
) -> None:
    network = Network(code, dims, 5)
    network.convolve(depth, taps, stride, is_output=True)
    compare(opencl_device, network)


@pytest.mark.parametrize(
    ("code", "zero_point", "outliers"),
    [
        *[(QUANT8, 0, 1.0), (QUANT8, 255, 1.0), (QUANT8, 131, 0.001), (QUANT8, 90, 0.02), (QUANT8, 128, 1.0)],
        *[(SIGNED, -128, 1.0), (SIGNED, 127, 1.0), (SIGNED, 9, 0.001)],
    ],
)
@pytest.mark.parametrize(
    ("dims", "depth", "taps"),
    [
        ((1, 6, 9, 140), 80, 1),
        ((1, 9, 11, 23), 41, 1),
        ((1, 5, 7, 2500), 17, 1),
        ((1, 9, 20, 33), 50, 3),
        ((1, 8, 9, 260), 70, 3),
        ((1, 1, 1, 148), 80, 1),
        ((1, 1, 1, 1280), 107, 1),
    ],
)
def test_weights_that_are_no_signed_bytes(
    form: int,
    opencl_device: Device,
    code: OperandCode,
    dims: Dimensions,
    depth: int,
    taps: int,
    zero_point: int,
    outliers: float,
) -> None:
    network = Network(code, dims, 5)
    network.weights_zero, network.outliers = zero_point, outliers
    network.convolve(depth, taps, is_output=True)
    compare(opencl_device, network)


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(("form", "unit"), [(1, 1), (3, 1), (4, 16)])
@pytest.mark.parametrize(("zero_point", "outliers"), [(0, 1.0), (255, 1.0), (131, 0.01), (128, 1.0)])
def test_packed_weights_and_their_excess_are_all_of_them(
    form: int, unit: int, zero_point: int, outliers: float, by_rows: bool
) -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(0, 256, (41, 3, 5, 29)).astype(np.uint8)
    inside = np.clip(weights, max(0, zero_point - 128), min(255, zero_point + 127))
    weights = np.where(rng.random(weights.shape) < outliers, weights, inside).astype(np.uint8)
    lanes = packing.convolution_lanes(41, form)
    packed = packing.pack_conv_weights_of_bytes(weights, zero_point, lanes, form, by_rows=by_rows)

    runs = weights.reshape(41, 3 if by_rows else 1, -1)
    quads = -(-runs.shape[2] // 4)
    sums = np.zeros((4, runs.shape[1], quads + unit, 16, 4), np.int64)  # of two blocks of two vectors
    sums[:3, :, :quads] = packed.weights.reshape(3, -1, quads, 16, 4)
    first, places = packed.places[:3], packed.places[3:]
    assert (first[0], first[-1]) == (0, places.size)
    for block in range(2):
        for entry in range(first[block], first[block + 1]):
            run, quad = divmod(int(places[entry]), 1 << 16)
            sums[2 * block : 2 * block + 2, run, quad : quad + unit] += packed.excess[entry]
    expected = np.zeros((48, runs.shape[1], 4 * quads), np.int64)
    expected[:41, :, : runs.shape[2]] = runs.astype(np.int64) - zero_point
    channels = sums[:3, :, :quads].transpose(0, 3, 1, 2, 4).reshape(48, runs.shape[1], -1)
    assert np.array_equal(channels, expected[lanes])
    assert (places.size == 0) == (zero_point == 128)


@CODES
@pytest.mark.parametrize("wide_channels", [0, 5])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize(
    "dims",
    [
        *[(1, 15, 23, 40), (2, 8, 16, 16), (1, 3, 14, 33), (2, 5, 9, 32), (1, 9, 4, 96), (1, 6, 1, 144), (1, 5, 8, 48)],
        *[(2, 7, 37, 8), (1, 9, 3, 8), (2, 6, 21, 4), (1, 5, 2, 4), (1, 8, 11, 16)],  # pixels fill the lanes
    ],
)
def test_depthwise_convolutions(
    form: int, opencl_device: Device, code: OperandCode, dims: Dimensions, size: int, stride: int, wide_channels: int
) -> None:
    network = Network(code, dims, 3, wide_channels)
    network.depthwise(size, stride, is_output=True)
    compare(opencl_device, network)


@CODES
def test_sums_that_floats_do_not_hold(form: int, opencl_device: Device, code: OperandCode) -> None:
    network = Network(code, (1, 9, 11, 64), 3)
    network.bias_range = 1 << 26
    network.convolve(70)
    network.depthwise(is_output=True)
    compare(opencl_device, network)


@CODES
@pytest.mark.parametrize("alone", [False, True], ids=["in a chain", "alone"])
def test_tables_of_bytes(form: int, opencl_device: Device, code: OperandCode, alone: bool) -> None:
    network = Network(code, (1, 7, 9, 37), 3)
    if not alone:
        network.convolve(70)
    scale, zero_point = 1 / 256, 0 if code == QUANT8 else -128
    output = network.graph.output(network.dims, code, scale, zero_point)
    network.graph.operation(OperationCode.LOGISTIC, [network.last], output)
    compare(opencl_device, network)


@pytest.mark.parametrize(("form", "depth"), [(1, 8), (3, 16)])
def test_lanes_of_few_channels_are_those_of_several_pixels(form: int, depth: int) -> None:
    block = packing.depthwise_block(form)
    lanes = packing.depthwise_lanes(depth, block).reshape(4, -1, 4).transpose(1, 0, 2).reshape(-1)
    assert np.array_equal(lanes, np.tile(np.arange(depth), block // depth))


@pytest.mark.parametrize(("form", "depth"), [(1, 16), (1, 80), (2, 144), (3, 32), (3, 100), (3, 200)])
def test_lanes_of_depthwise_blocks_are_all_channels(form: int, depth: int) -> None:
    block = packing.depthwise_block(form)
    lanes = packing.depthwise_lanes(depth, block)
    assert lanes.size == -(-depth // block) * block
    assert set(lanes.tolist()) == set(range(depth))
    for start in range(0, lanes.size, block):  # four vectors become one, group by group
        of_block = lanes[start : start + block].reshape(4, -1, 4).transpose(1, 0, 2).reshape(-1)
        if depth - start <= block // 2:
            of_block = of_block[: block // 2]
        assert (np.diff(of_block) == 1).all()
