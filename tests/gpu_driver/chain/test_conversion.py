# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE and DEQUANTIZE as steps of chains: what numpy and the CPU driver give, one launch with what lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver import chain
from gpu_driver.chain import images
from gpu_driver.chain.conversion import GREATEST_SCALE, LEAST_SCALE
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.devices import find_device
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.drawn import FLOAT, QUANT8, SCALES, SIGNED, ZEROS, Network
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

QUANTIZE, DEQUANTIZE = OperationCode.QUANTIZE, OperationCode.DEQUANTIZE
HALF = OperandCode.TENSOR_FLOAT16
BYTES = [QUANT8, SIGNED]


class Between(Network):
    """Convolutions of bytes between real numbers that come in and go out."""

    def __init__(self, code: OperandCode, dims: Dimensions, real: OperandCode = FLOAT, scale: float = 0.0) -> None:
        super().__init__(code, dims, 5)
        self.graph, self.real = Graph(), real
        self.last = self.graph.temporary(dims, code, scale or SCALES[code], ZEROS[code])
        self.graph.operation(QUANTIZE, [self.graph.input(dims, real)], self.last)

    def dequantize(self) -> None:
        output = self.graph.output(self.dims, self.real)
        self.graph.operation(DEQUANTIZE, [self.last], output)

    def data(self) -> Array:
        dims = self.graph.model().main.operands[self.graph.model().main.input_indexes[0]].dimensions
        return np.random.default_rng(9).normal(0, 3, dims).astype(dtype_of(self.real))


def network(code: OperandCode, dims: Dimensions, real: OperandCode = FLOAT) -> Between:
    made = Between(code, dims, real)
    made.convolve(20, 3, 2)
    made.depthwise()
    made.convolve(33)
    made.dequantize()
    return made


def launches_of(graph: Graph) -> list[Launch]:
    lowering = Lowering(graph.model(), CPU_PROFILE)
    return [one for one in lowering.lower(0, lowering.static_inputs()).commands if isinstance(one, Launch)]


def kinds_of(graph: Graph) -> list[list[chain.Kind]]:
    return [[step.kind for step in launch.steps] for launch in launches_of(graph)]


def results_of(device: Device, graph: Graph, source: Array, like: Array) -> tuple[Array, Array]:
    """Return what a device and the CPU driver make of an array."""
    results = []
    for one in (device, find_device("nnapi-reference").hal):
        results.append(np.zeros_like(like))
        run(prepare(one, graph.model()), request([source], [results[-1]]))  # type: ignore[arg-type]
    return results[0], results[1]


@pytest.mark.parametrize("code", BYTES)
def test_a_network_between_real_numbers_is_one_launch(code: OperandCode) -> None:
    (kinds,) = kinds_of(network(code, (1, 12, 12, 3)).graph)
    assert kinds[0] == chain.Kind.QUANTIZE
    assert kinds[-1] == chain.Kind.DEQUANTIZE
    assert chain.Kind.CONVOLVE in kinds


@pytest.mark.parametrize("groups, queues", [(1, 3), (3, 3), (2, 2)])
@pytest.mark.parametrize("dims", [(1, 12, 12, 3), (1, 9, 7, 5), (3, 8, 8, 16), (1, 1, 1, 37)], ids=str)
@pytest.mark.parametrize("code", BYTES)
def test_it_gives_what_the_cpu_driver_gives(
    opencl_device: Device,
    monkeypatch: pytest.MonkeyPatch,
    code: OperandCode,
    dims: Dimensions,
    groups: int,
    queues: int,
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    made = network(code, dims)
    ours, reference = results_of(opencl_device, made.graph, made.data(), np.empty(made.dims, np.float32))
    assert np.unique(reference).size > 5
    np.testing.assert_array_equal(ours, reference)


@pytest.mark.parametrize("code", BYTES)
def test_several_images_go_through_it_one_after_the_other(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, code: OperandCode
) -> None:
    monkeypatch.setattr(images, "LEAST_FLOPS", 1)
    made = Between(code, (4, 16, 16, 16))
    made.convolve(32)
    made.depthwise()
    made.dequantize()
    assert [launch.repeats for launch in launches_of(made.graph)] == [4]
    ours, reference = results_of(opencl_device, made.graph, made.data(), np.empty(made.dims, np.float32))
    np.testing.assert_array_equal(ours, reference)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("code", BYTES)
def test_quotients_are_rounded_as_ieee_754_has_them(opencl_device: Device, code: OperandCode, count: int) -> None:
    """Ties away from zero; beyond what a byte holds its ends; no number is the least one."""
    scale = float(np.float32(0.1))
    rng = np.random.default_rng(3)
    source = rng.normal(0, 8, count).astype(np.float32)
    special = [np.nan, np.inf, -np.inf, 0.05, -0.05, 1e30, -1e30, 1e-40, -0.0, 3.25, 12.75, 1e4, -1e4]
    source[: min(count, len(special))] = special[:count]
    graph = Graph()
    made = graph.output((1, count), code, scale, ZEROS[code])
    graph.operation(QUANTIZE, [graph.input((1, count))], made)
    for _ in range(3):  # so many that they are worth a chain
        graph.operation(DEQUANTIZE, [made], graph.output((1, count)))
    (kinds,) = kinds_of(graph)
    assert kinds == [chain.Kind.QUANTIZE, *[chain.Kind.DEQUANTIZE] * 3]
    results = [np.empty((1, count), dtype_of(code)), *(np.empty((1, count), np.float32) for _ in range(3))]
    run(prepare(opencl_device, graph.model()), request([source.reshape(1, -1)], results))
    info = np.iinfo(dtype_of(code))
    with np.errstate(invalid="ignore"):
        quotient = (source / np.float32(scale)).astype(np.float64)
    whole = np.sign(quotient) * np.floor(np.abs(quotient) + 0.5) + ZEROS[code]
    wanted = np.clip(np.nan_to_num(whole, nan=info.min, posinf=info.max, neginf=info.min), info.min, info.max)
    np.testing.assert_array_equal(results[0].reshape(-1), wanted.astype(dtype_of(code)))
    real = np.float32(scale) * (wanted - ZEROS[code]).astype(np.float32)
    for result in results[1:]:
        np.testing.assert_array_equal(result.reshape(-1), real)


@pytest.mark.parametrize("scale", [LEAST_SCALE / 2, GREATEST_SCALE * 2])
def test_extreme_scales_have_a_launch_of_their_own(opencl_device: Device, scale: float) -> None:
    graph = Graph()
    dims = 1, 40
    output = graph.output(dims, SIGNED, scale, 3)
    graph.operation(QUANTIZE, [graph.input(dims)], output)
    assert kinds_of(graph) == [[]]
    source = (np.float64(scale) * np.arange(-20, 20)).astype(np.float32).reshape(dims)
    ours, reference = results_of(opencl_device, graph, source, np.empty(dims, np.int8))
    np.testing.assert_array_equal(ours, reference)


def test_halves_and_constants_have_launches_of_their_own() -> None:
    assert all(chain.Kind.QUANTIZE not in kinds for kinds in kinds_of(network(SIGNED, (1, 8, 8, 4), HALF).graph))
    graph = Graph()
    constant = graph.constant(np.ones((2, 20), np.int8), SIGNED, 0.5, 0)
    graph.operation(DEQUANTIZE, [constant], graph.output((2, 20)))
    assert kinds_of(graph) == [[]]


def test_two_conversions_are_not_worth_a_program_of_a_chain() -> None:
    graph = Graph()
    made = graph.temporary((1, 40), SIGNED, 0.5, 0)
    graph.operation(QUANTIZE, [graph.input((1, 40))], made)
    graph.operation(DEQUANTIZE, [made], graph.output((1, 40)))
    assert [launch.kernel.source for launch in launches_of(graph)] == ["quantize.cl"] * 2
