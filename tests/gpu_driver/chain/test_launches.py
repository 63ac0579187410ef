# SPDX-License-Identifier: Apache-2.0
"""What becomes of runs of operations: which program does them, through which rows; values by float64 numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.bound import BoundOperand
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from gpu_driver.tuning_values import Tuning
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import fresh, prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Dimensions

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
ADD, SUB, MUL, MAXIMUM = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.MAXIMUM
TOLERANCE = {FLOAT: 2e-5, HALF: 2e-2}


def launches_of(graph: Graph, tuning: Tuning = CPU_PROFILE.tuning) -> list[Launch]:
    lowering = Lowering(graph.model(), replace(CPU_PROFILE, tuning=tuning))
    return [one for one in lowering.lower(0, lowering.static_inputs()).commands if isinstance(one, Launch)]


@pytest.mark.parametrize(
    ("before", "programs"),
    [
        (4, ["chain.cl", "normalization.cl", "chain.cl"]),
        (2, ["elementwise.cl", "elementwise.cl", "normalization.cl", "elementwise.cl"]),
    ],
)
def test_an_operation_alone_is_done_by_a_program_that_others_need(before: int, programs: list[str]) -> None:
    dims = (30, 64)
    graph = Graph()
    source, now = graph.input(dims), 0
    for place in range(before):
        other = source if place == 0 else now
        now = graph.temporary(dims)
        graph.operation(MUL, [source, other, graph.integer(FuseCode.NONE)], now)
    normalised = graph.temporary(dims)
    graph.operation(OperationCode.L2_NORMALIZATION, [now], normalised)
    graph.operation(ADD, [normalised, source, graph.integer(FuseCode.NONE)], graph.output(dims))
    launches = launches_of(graph)
    assert [launch.kernel.source for launch in launches] == programs
    chains = {launch.kernel for launch in launches if launch.kernel.source == "chain.cl"}
    assert len(chains) <= 1


@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
@pytest.mark.parametrize("size", [20000, 40961, 30 * 64 * 17, 7 * 131 * 32])
def test_long_vectors_are_shared_out_by_rows(opencl_device: Device, code: OperandCode, size: int) -> None:
    graph = Graph()
    first, second = (graph.input((size,), code) for _ in range(2))
    output = graph.output((size,), code)
    now = first
    for place, (operation, other) in enumerate(((MUL, second), (SUB, second), (MAXIMUM, first), (ADD, first))):
        following = output if place == 3 else graph.temporary((size,), code)
        activation = [] if operation == MAXIMUM else [graph.integer(FuseCode.NONE)]
        graph.operation(operation, [now, other, *activation], following)
        now = following
    has_rows = size != 40961  # a prime number
    if has_rows:
        ((step,),) = (launch.steps for launch in launches_of(graph))
        assert step.output_shape[0] > 1
        assert step.output_shape[0] * step.output_shape[1] == size
    a, b = np.random.default_rng(size).uniform(-1, 1, (2, size)).astype(dtype_of(code))
    result = np.empty(size, dtype_of(code))
    run(prepare(opencl_device, graph.model()), request([a, b], [result]))
    x, y = a.astype(np.float64), b.astype(np.float64)
    tolerance = TOLERANCE[code]
    np.testing.assert_allclose(result, np.maximum(x * y - y, x) + x, rtol=tolerance, atol=tolerance)


def test_what_knows_elements_only_goes_through_the_rows_that_made_them(opencl_device: Device) -> None:
    dims, size = (30, 64), 30 * 64
    graph = Graph()
    source, output = graph.input(dims), graph.output(dims)
    row = graph.constant(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64))
    product, square, shifted = graph.temporary(dims), graph.temporary((size,)), graph.temporary((size,))
    vector, image = graph.temporary((size,)), graph.temporary(dims)
    none = graph.integer(FuseCode.NONE)
    graph.operation(MUL, [source, row, none], product)
    graph.operation(OperationCode.RESHAPE, [product, graph.constant(np.array([size], np.int32))], vector)
    graph.operation(MUL, [vector, vector, none], square)
    graph.operation(ADD, [square, graph.constant(np.array([0.5], np.float32)), none], shifted)
    graph.operation(OperationCode.RESHAPE, [shifted, graph.constant(np.array(dims, np.int32))], image)
    graph.operation(SUB, [image, row, none], output)
    ((step,),) = (launch.steps for launch in launches_of(graph))
    assert step.output_shape == dims

    data = np.random.default_rng(0).uniform(-1, 1, dims).astype(np.float32)
    result = np.empty(dims, np.float32)
    run(prepare(opencl_device, graph.model()), request([data], [result]))
    numbers = np.linspace(-1, 1, 64)
    np.testing.assert_allclose(result, (data * numbers) ** 2 + 0.5 - numbers, rtol=2e-5, atol=2e-6)


def test_constants_that_only_begin_alike_are_apart(opencl_device: Device) -> None:
    """Two products by diagonal matrices, of which the last numbers are 2 and 3: 6 times the last input."""
    depth, graph = 64, Graph()
    zeros, none = graph.constant(np.zeros(depth, np.float32)), graph.integer(FuseCode.NONE)
    now = graph.input((4, depth))
    for last, made in ((2, graph.temporary((4, depth))), (3, graph.output((4, depth)))):
        weights = np.eye(depth, dtype=np.float32)
        weights[-1, -1] = last
        graph.operation(OperationCode.FULLY_CONNECTED, [now, graph.constant(weights), zeros, none], made)
        now = made
    assert len(launches_of(graph)) == 1
    source, result = np.ones((4, depth), np.float32), np.zeros((4, depth), np.float32)
    run(prepare(opencl_device, graph.model()), request([source], [result]))
    assert np.array_equal(result, np.array([[1] * (depth - 1) + [6]] * 4))


def sum_of(graph: Graph, tensors: list[int], dims: Dimensions, code: OperandCode = FLOAT) -> None:
    """Add tensors one after the other to an output."""
    none, now = graph.integer(FuseCode.NONE), tensors[0]
    for place, other in enumerate(tensors[1:], 2):
        made = graph.output(dims, code) if place == len(tensors) else graph.temporary(dims, code)
        graph.operation(ADD, [now, other, none], made)
        now = made


@pytest.mark.parametrize("count", [14, 15, 16, 40])
def test_a_launch_has_as_many_buffers_as_its_kernel(opencl_device: Device, count: int) -> None:
    """Fifteen for what it reads and writes, the result among them."""
    dims, graph = (5, 64), Graph()
    sum_of(graph, [graph.input(dims) for _ in range(count)], dims)
    assert (len(launches_of(graph)) == 1) == (count == 14)
    data = np.random.default_rng(0).uniform(-1, 1, (count, *dims)).astype(np.float32)
    result = np.empty(dims, np.float32)
    run(prepare(opencl_device, graph.model()), request(list(data), [result]))
    np.testing.assert_allclose(result, data.sum(axis=0, dtype=np.float64), atol=1e-5)


def test_what_an_earlier_launch_has_filled_is_not_a_later_ones_own(opencl_device: Device) -> None:
    """What lies around a tensor is the last that one launch makes, and the tensor the first of the next."""
    device = fresh(opencl_device)
    device.set_tuning({"chain_steps": 32})
    dims, wide, graph = (5, 64), (5, 96), Graph()
    now = graph.input(dims)
    for _ in range(31):
        graph.operation(OperationCode.NEG, [now], made := graph.temporary(dims))
        now = made
    padded = graph.temporary(wide)
    amounts = graph.constant(np.array([[0, 0], [16, 16]], np.int32))
    graph.operation(OperationCode.PAD_V2, [now, amounts, graph.real(3.0)], padded)
    ones = graph.constant(np.ones(1, np.float32))
    sum_of(graph, [padded, ones, ones, ones, ones], wide)
    for launch in launches_of(graph, Tuning(chain_steps=32)):
        assert padded in {one.index for one in launch.arguments if isinstance(one, BoundOperand)}
    data = np.random.default_rng(0).uniform(-1, 1, dims).astype(np.float32)
    result = np.empty(wide, np.float32)
    run(prepare(device, graph.model()), request([data], [result]))
    np.testing.assert_allclose(result, np.pad(-data, ((0, 0), (16, 16)), constant_values=3) + 4, rtol=1e-6)


def test_each_type_has_a_launch_of_its_own(opencl_device: Device) -> None:
    dims, graph = (5, 64), Graph()
    data = []
    for code in (FLOAT, HALF):
        sum_of(graph, [graph.input(dims, code) for _ in range(5)], dims, code)
        data.append(np.random.default_rng(0).uniform(-1, 1, (5, *dims)).astype(dtype_of(code)))
    assert len(launches_of(graph)) == 2
    results = [np.empty(dims, dtype_of(code)) for code in (FLOAT, HALF)]
    run(prepare(opencl_device, graph.model()), request([one for some in data for one in some], results))
    for result, some, code in zip(results, data, (FLOAT, HALF), strict=True):
        np.testing.assert_allclose(result, some.sum(axis=0, dtype=np.float64), atol=TOLERANCE[code])


def test_what_the_program_of_others_cannot_do_has_its_own(opencl_device: Device) -> None:
    """A chain of two products knows no operations of elements."""
    dims, graph = (5, 64), Graph()
    none, now = graph.integer(FuseCode.NONE), graph.input(dims)
    matrices = np.random.default_rng(1).uniform(-0.2, 0.2, (2, 64, 64)).astype(np.float32)
    for weights in matrices:
        operands = [now, graph.constant(weights), graph.constant(np.zeros(64, np.float32)), none]
        graph.operation(OperationCode.FULLY_CONNECTED, operands, made := graph.temporary(dims))
        now = made
    graph.operation(OperationCode.L2_NORMALIZATION, [now], normalised := graph.temporary(dims))
    graph.operation(ADD, [normalised, now, none], graph.output(dims))
    assert [one.kernel.source for one in launches_of(graph)] == ["chain.cl", "normalization.cl", "elementwise.cl"]
    data, result = np.random.default_rng(2).uniform(-1, 1, dims).astype(np.float32), np.empty(dims, np.float32)
    run(prepare(opencl_device, graph.model()), request([data], [result]))
    product = data.astype(np.float64) @ matrices[0].T @ matrices[1].T
    np.testing.assert_allclose(result, product / np.linalg.norm(product, axis=1, keepdims=True) + product, atol=1e-5)
