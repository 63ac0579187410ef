# SPDX-License-Identifier: Apache-2.0
"""Convolutions joined with the depthwise ones after them: which are, their tasks, and the CPU driver's results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.chain import images
from gpu_driver.kernel import Scratch
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
    from nn_runtime.operand import Dimensions


def block(
    dims: Dimensions, depth: int, taps: int = 1, stride: int = 1, depthwise_stride: int = 1, code: OperandCode = FLOAT
) -> Network:
    network = Network(code, dims, 7)
    network.convolve(depth, taps, stride)
    network.depthwise(3, depthwise_stride)
    network.convolve(8, is_output=True)
    return network


def launch_of(network: Network, cores: int = 2) -> Launch:
    lowering = Lowering(network.graph.model(), replace(CPU_PROFILE, compute_units=cores))
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    return launch


def kinds(network: Network, cores: int = 2) -> list[int]:
    return [step.kind for step in launch_of(network, cores).steps]


def test_a_convolution_and_the_depthwise_one_after_it_are_one_step() -> None:
    network = block((1, 28, 28, 16), 96)
    launch = launch_of(network)
    assert [step.kind for step in launch.steps] == [chain.Kind.EXPANDED, chain.Kind.CONVOLVE]
    assert launch.steps[0].operations == (0, 1)
    assert sorted(launch.operations) == [0, 1, 2]
    assert launch.flops == 2 * 28 * 28 * (16 * 96 + 9 * 96 + 96 * 8)


def test_what_lies_between_has_no_memory() -> None:
    (own,) = {one for one in launch_of(block((1, 28, 28, 16), 96)).arguments if isinstance(one, Scratch)}
    assert own.size_bytes == 28 * 28 * 96 * 4


@pytest.mark.parametrize(
    ("network", "cores"),
    [
        (block((1, 28, 28, 16), 40), 2),
        (block((1, 28, 28, 16), 96, code=QUANT8), 2),
        (block((1, 28, 28, 16), 96), 3),
        (block((1, 28, 6, 16), 96), 2),
    ],
    ids=["depth", "type", "rows", "columns"],
)
def test_others_stay_apart(network: Network, cores: int) -> None:
    assert kinds(network, cores) == [chain.Kind.CONVOLVE, chain.Kind.DEPTHWISE, chain.Kind.CONVOLVE]


def test_what_somebody_else_reads_is_written() -> None:
    network = Network(FLOAT, (1, 28, 28, 32), 7)
    network.convolve(32)
    between = network.last
    network.depthwise()
    network.convolve(32)
    network.plus(between, is_output=True)
    assert chain.Kind.EXPANDED not in kinds(network)


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize(("taps", "stride", "depthwise_stride"), [(1, 1, 1), (1, 1, 2), (3, 2, 1), (3, 1, 2)])
def test_a_task_reads_the_rows_that_its_own_need(taps: int, stride: int, depthwise_stride: int, cores: int) -> None:
    height = 14 * cores * stride
    step = launch_of(block((1, height, 15, 16), 48, taps, stride, depthwise_stride), cores).steps[0]
    assert step.kind == chain.Kind.EXPANDED
    outer, inner = step.geometry, step.before.geometry if step.before else step.geometry
    for task in chain.tasks_of(step, cores):
        needed = set()
        for row in range(task.pixels[0] // outer.output_width, task.pixels[1] // outer.output_width):
            for middle in range(row * outer.stride_height - outer.padding_top, row * outer.stride_height + 3):
                if middle - row * outer.stride_height + outer.padding_top < 3 and 0 <= middle < outer.input_height:
                    first = middle * inner.stride_height - inner.padding_top
                    needed |= {y for y in range(first, first + taps) if 0 <= y < height}
        pixels, channels = chain.reads_of(step, task)
        assert set(range(pixels[0] // 15, pixels[1] // 15)) >= needed
        assert channels == (0, 16)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize(
    ("dims", "depth", "taps", "stride", "depthwise_stride"),
    [
        *[((29, 31, 16), 64, 1, 1, 1), ((28, 30, 24), 144, 1, 1, 2), ((57, 33, 3), 32, 3, 2, 1)],
        *[((30, 7, 5), 16, 3, 1, 1), ((28, 230, 8), 48, 1, 1, 1), ((29, 241, 8), 32, 3, 1, 2)],
        *[((28, 13, 600), 32, 1, 1, 1), ((33, 17, 4), 48, 5, 1, 2), ((28, 8, 16), 32, 1, 1, 1)],
    ],
)
def test_joined_steps_give_what_steps_apart_and_the_cpu_driver_give(
    opencl_device: Device,
    monkeypatch: pytest.MonkeyPatch,
    dims: tuple[int, int, int],
    depth: int,
    taps: int,
    stride: int,
    depthwise_stride: int,
    batches: int,
) -> None:
    monkeypatch.setattr(images, "LEAST_FLOPS", 1 << 60)
    network = block((batches, *dims), depth, taps, stride, depthwise_stride)
    model, source = network.graph.model(), network.data()
    results = []
    for device, least_rows in ((find_device("nnapi-reference").hal, 1), (opencl_device, 1), (opencl_device, 1 << 30)):
        monkeypatch.setattr("gpu_driver.chain.expanded.LEAST_ROWS", least_rows)
        assert (chain.Kind.EXPANDED in kinds(network)) == (least_rows == 1)
        results.append(np.empty(network.dims, source.dtype))
        run(prepare(device, model), request([source], [results[-1]]))  # type: ignore[arg-type]
    np.testing.assert_allclose(results[1], results[0], atol=2e-5, rtol=2e-5)
    np.testing.assert_array_equal(results[1], results[2])
