# SPDX-License-Identifier: Apache-2.0
"""Pixels and channels that chains compute at once: what is chosen for networks, and that results have the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain import launches, tiles
from gpu_driver.chain.tiles import Tiles, usual_tiles
from gpu_driver.device_profile import DeviceProfile
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import OperationCode
from nn_runtime.devices import find_device
from tests.gpu_driver.drawn import FLOAT, QUANT8, Network, convolutions_with_work_memory, inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions


def blocks(code: OperandCode, size: int) -> Network:
    network = Network(code, (2, size, size, 16), 3)
    network.convolve(40)
    network.depthwise()
    network.convolve(24)
    network.convolve(72)
    network.depthwise(3, 2)
    network.convolve(20, is_output=True)
    return network


def deep(code: OperandCode) -> Network:
    """Weights that no cache holds at once: groups of three vectors of channels, and whatever is left of them."""
    network = Network(code, (1, 9, 10, 130), 4)
    for depth in (64, 200, 112, 49, 100):
        network.convolve(depth)
    network.convolve(100, 3, 2)
    network.convolve(70, 3, is_output=True)
    return network


def products() -> tuple[Model, Array]:
    """Matrix products whose rows and columns are no multiples of what a tile has."""
    graph, rng = Graph(), np.random.default_rng(2)
    left = graph.input((3, 13, 20))
    right = graph.constant(rng.standard_normal((3, 20, 37)).astype(np.float32))
    no = graph.flag(False)
    graph.operation(OperationCode.BATCH_MATMUL, [left, right, no, no], graph.output((3, 13, 37)))
    return graph.model(), rng.standard_normal((3, 13, 20)).astype(np.float32)


def chosen(size: int, profile: DeviceProfile = CPU_PROFILE) -> Tiles:
    return chosen_for(blocks(FLOAT, size), profile)


def chosen_for(network: Network, profile: DeviceProfile) -> Tiles:
    lowering = Lowering(network.graph.model(), profile)
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    defines = dict(launch.kernel.defines)
    pixels, columns = defines.get("TILE_PIXELS", 7), defines.get("DEPTHWISE_PIXELS", 7)
    assert {step.tile_pixels for step in launch.steps} == {pixels}
    vectors = defines.get("TILE_VECTORS")
    return Tiles(int(pixels), int(columns), None if vectors is None else int(vectors))


def results_with(
    choice: Tiles, device: Device, model: Model, source: Array, dims: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> Array:
    monkeypatch.setattr(launches, "tiles_for", lambda steps, device: choice)
    result = np.empty(dims, source.dtype)
    run(prepare(device, model), request([source], [result]))
    return result


@pytest.mark.parametrize(
    ("size", "wanted"), [(14, Tiles()), (28, Tiles()), (8, Tiles(8, 4)), (16, Tiles(7, 4)), (12, Tiles(8, 6))]
)
def test_few_pixels_are_left_over(size: int, wanted: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "LEAST_FLOPS", 0)
    assert chosen(size) == wanted


def test_small_networks_share_one_program() -> None:
    assert chosen(8) == Tiles()


@pytest.mark.parametrize(
    ("rows", "depth", "wanted"), [(1, 1024, 7), (2, 1024, 4), (4, 1024, 4), (7, 1024, 7), (8, 1024, 8), (8, 128, 7)]
)
def test_rows_of_a_batch_are_a_tile(rows: int, depth: int, wanted: int) -> None:
    """But one row needs none, and few multiplications are not worth a program."""
    network = Network(FLOAT, (rows, 1, 1, depth), 3)
    network.convolve(depth)
    network.convolve(depth, is_output=True)
    assert chosen_for(network, CPU_PROFILE).pixels == wanted


@pytest.mark.parametrize(("width", "wanted"), [(32, 8), (28, 7), (33, 7)])
def test_tiles_of_bytes_end_with_rows(width: int, wanted: int) -> None:
    """Else windows of those in two rows are copied one by one."""
    network = Network(QUANT8, (1, 32, width, 16), 3)
    for _ in range(4):
        network.convolve(16, 3)
    network.convolve(16, 3, is_output=True)
    with_bytes = replace(CPU_PROFILE, features=CPU_PROFILE.features | {"x86_vnni"})
    assert chosen_for(network, with_bytes).pixels == wanted
    assert chosen_for(network, CPU_PROFILE).pixels == usual_tiles(CPU_PROFILE).pixels


def test_what_few_registers_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = replace(CPU_PROFILE, registers=8)
    assert usual_tiles(narrow) == chosen(8, narrow) == Tiles(6, vectors=1)
    monkeypatch.setattr(tiles, "LEAST_FLOPS", 0)
    assert chosen(5, narrow) == Tiles(6, 5, 1)  # 25 pixels: five tiles that have one less
    assert chosen(24, narrow).pixels == 6


def test_three_vectors_need_assembly_that_was_seen_to_work_on_intels_runtime() -> None:
    intel = replace(CPU_PROFILE, slug="intel")
    assert usual_tiles(intel) == chosen(8, intel) == Tiles(vectors=2)
    assert usual_tiles(replace(intel, features=frozenset({"x86_vnni"}))) == Tiles()


@pytest.mark.parametrize("pixels", [1, 5, 8, 13, 19, 31, 45, 49, 64])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_pixels_left_over_are_spread_over_tiles(
    opencl_device: Device, code: OperandCode, pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last tiles have one pixel less, or do some again where there are too few tiles for that."""
    network = Network(code, (1, 1, pixels, 24), 5)
    first = network.convolve(24)
    network.convolve(72)
    network.convolve(24)
    network.plus(first)
    network.convolve(40, is_output=True)
    model, source = network.graph.model(), network.data()
    choices = Tiles(6, vectors=1), Tiles(8, vectors=1)
    results = [results_with(one, opencl_device, model, source, network.dims, monkeypatch) for one in choices]
    np.testing.assert_array_equal(results[0], results[1])
    expected = np.empty_like(results[0])
    run(prepare(find_device("nnapi-reference").hal, model), request([source], [expected]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[0], expected, atol=0 if code == QUANT8 else 2e-5)


@pytest.mark.parametrize("other", [(8, 4), (9, 6), (8, 5), (4, 7)])
@pytest.mark.parametrize("size", [5, 10, 29])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_results_have_the_same_bits(
    opencl_device: Device, code: OperandCode, size: int, other: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = blocks(code, size)
    model, source = network.graph.model(), network.data()
    usual = usual_tiles(opencl_device.profile)
    choices = usual, replace(usual, pixels=other[0], columns=other[1])
    results = [results_with(one, opencl_device, model, source, network.dims, monkeypatch) for one in choices]
    np.testing.assert_array_equal(results[0], results[1])
    expected = np.empty_like(results[0])
    run(prepare(find_device("nnapi-reference").hal, model), request([source], [expected]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[0], expected, atol=0 if code == QUANT8 else 2e-5)


@pytest.mark.parametrize("other", [Tiles(6, vectors=1), Tiles(8, vectors=2)])
@pytest.mark.parametrize("network", [inverted_residuals, convolutions_with_work_memory, deep])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_any_number_of_channels_gives_the_same_bits(
    opencl_device: Device,
    code: OperandCode,
    network: Callable[[OperandCode], Network],
    other: Tiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DeviceProfile, "dot4", 0)  # bytes as floats
    drawn = network(code)
    model, source = drawn.graph.model(), drawn.data()
    choices = usual_tiles(opencl_device.profile), other
    results = [results_with(one, opencl_device, model, source, drawn.dims, monkeypatch) for one in choices]
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("other", [Tiles(6, vectors=1), Tiles(8, vectors=2)])
def test_matrix_products_have_the_same_bits(
    opencl_device: Device, other: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = products()
    choices = usual_tiles(opencl_device.profile), other
    results = [results_with(one, opencl_device, model, source, (3, 13, 37), monkeypatch) for one in choices]
    np.testing.assert_array_equal(results[0], results[1])
