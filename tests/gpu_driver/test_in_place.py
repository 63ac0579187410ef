# SPDX-License-Identifier: Apache-2.0
"""Outputs in the memory of inputs: where that is safe, and what it saves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import fresh, prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device

COUNT = 1000
BYTES = 4 * COUNT
ABS, EXP, NEG, TANH = OperationCode.ABS, OperationCode.EXP, OperationCode.NEG, OperationCode.TANH


def chain(*codes: OperationCode) -> Graph:
    """One operation after the other."""
    graph = Graph()
    now = graph.input((COUNT,))
    for code in codes[:-1]:
        following = graph.temporary((COUNT,))
        graph.operation(code, [now], following)
        now = following
    graph.operation(codes[-1], [now], graph.output((COUNT,)))
    return graph


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """One on which every operation is a launch: a chain has its own ways to use memory again."""
    found = fresh(opencl_device)
    found.set_tuning({"chain_steps": 1})
    return found


def arena_bytes(device: Device, graph: Graph) -> int:
    static = prepare(device, graph.model())._graph.static
    assert static is not None
    return sum(static.arenas.sizes_bytes)


def test_temporaries_of_a_chain_are_one_memory(device: Device) -> None:
    graph = chain(NEG, TANH, ABS, EXP, NEG)
    assert arena_bytes(device, graph) == BYTES
    data = np.linspace(-3, 3, COUNT, dtype=np.float32)
    result = np.zeros_like(data)
    run(prepare(device, graph.model()), request([data], [result]))
    np.testing.assert_allclose(result, -np.exp(np.abs(np.tanh(data.astype(np.float64)))), rtol=1e-5)
    assert np.array_equal(data, np.linspace(-3, 3, COUNT, dtype=np.float32))


@pytest.mark.parametrize("is_reshaped", [False, True], ids=["itself", "by another name"])
def test_what_is_read_again_keeps_its_memory(device: Device, is_reshaped: bool) -> None:
    graph = Graph()
    first, second, third = (graph.temporary((COUNT,)) for _ in range(3))
    graph.operation(TANH, [graph.input((COUNT,))], first)
    again = first
    if is_reshaped:
        again = graph.temporary((COUNT, 1))
        graph.operation(OperationCode.RESHAPE, [first, graph.constant(np.array([COUNT, 1], np.int32))], again)
    graph.operation(NEG, [first], second)
    graph.operation(ABS, [second], third)
    flat = graph.temporary((COUNT,))
    graph.operation(OperationCode.RESHAPE, [again, graph.constant(np.array([COUNT], np.int32))], flat)
    graph.operation(OperationCode.ADD, [third, flat, graph.integer(FuseCode.NONE)], graph.output((COUNT,)))
    assert 2 * BYTES <= arena_bytes(device, graph) < 3 * BYTES
    data = np.linspace(-3, 3, COUNT, dtype=np.float32)
    result = np.zeros_like(data)
    run(prepare(device, graph.model()), request([data], [result]))
    wanted = np.tanh(data.astype(np.float64))
    np.testing.assert_allclose(result, wanted + np.abs(wanted), rtol=1e-5, atol=1e-6)


def test_other_sizes_and_ends_of_the_model_are_left_alone() -> None:
    graph = Graph()
    codes, real = graph.temporary((COUNT,), OperandCode.TENSOR_QUANT8_ASYMM, 0.1), graph.temporary((COUNT,))
    graph.operation(OperationCode.QUANTIZE, [graph.input((COUNT,))], codes)
    graph.operation(OperationCode.DEQUANTIZE, [codes], real)
    graph.operation(NEG, [real], graph.output((COUNT,)))
    lowering = Lowering(graph.model(), CPU_PROFILE)
    assert lowering.lower(0, lowering.static_inputs()).storage == {}


def test_constants_are_left_alone() -> None:
    graph = Graph()
    first, second = graph.temporary((COUNT,)), graph.temporary((COUNT,))
    graph.operation(TANH, [graph.constant(np.ones(COUNT, np.float32))], first)
    graph.operation(ABS, [first], second)
    graph.operation(OperationCode.ADD, [second, second, graph.integer(FuseCode.NONE)], graph.output((COUNT,)))
    profile = replace(CPU_PROFILE, tuning=replace(CPU_PROFILE.tuning, chain_steps=1))
    lowering = Lowering(graph.model(), profile)
    assert lowering.lower(0, lowering.static_inputs()).storage == {second: first}
