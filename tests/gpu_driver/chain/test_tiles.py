# SPDX-License-Identifier: Apache-2.0
"""Pixels that chains compute at once: what is chosen for whole networks, and that results have the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain import launches, tiles
from gpu_driver.chain.tiles import Tiles
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.devices import find_device
from tests.gpu_driver.drawn import FLOAT, QUANT8, Network
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.codes import OperandCode


def blocks(code: OperandCode, size: int) -> Network:
    network = Network(code, (2, size, size, 16), 3)
    network.convolve(40)
    network.depthwise()
    network.convolve(24)
    network.convolve(72)
    network.depthwise(3, 2)
    network.convolve(20, is_output=True)
    return network


def chosen(size: int) -> Tiles:
    lowering = Lowering(blocks(FLOAT, size).graph.model(), CPU_PROFILE)
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    defines = dict(launch.kernel.defines)
    pixels, columns = defines.get("TILE_PIXELS", 7), defines.get("DEPTHWISE_PIXELS", 7)
    assert {step.tile_pixels for step in launch.steps} == {pixels}
    return Tiles(int(pixels), int(columns))


@pytest.mark.parametrize(
    ("size", "wanted"), [(14, Tiles()), (28, Tiles()), (8, Tiles(8, 4)), (16, Tiles(7, 4)), (12, Tiles(8, 6))]
)
def test_few_pixels_are_left_over(size: int, wanted: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "LEAST_FLOPS", 0)
    assert chosen(size) == wanted


def test_small_networks_share_one_program() -> None:
    assert chosen(8) == Tiles()


@pytest.mark.parametrize("other", [Tiles(8, 4), Tiles(9, 6), Tiles(8, 5)])
@pytest.mark.parametrize("size", [5, 10, 29])
@pytest.mark.parametrize("code", [FLOAT, QUANT8])
def test_results_have_the_same_bits(
    opencl_device: Device, code: OperandCode, size: int, other: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = blocks(code, size)
    model, source = network.graph.model(), network.data()
    results = []
    for choice in (Tiles(), other):
        monkeypatch.setattr(launches, "tiles_for", lambda steps, choice=choice: choice)
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(opencl_device, model), request([source], [results[-1]]))
    np.testing.assert_array_equal(results[0], results[1])
    expected = np.empty_like(results[0])
    run(prepare(find_device("nnapi-reference").hal, model), request([source], [expected]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[0], expected, atol=0 if code == QUANT8 else 2e-5)
