# SPDX-License-Identifier: Apache-2.0
"""Products by matrices that are made meanwhile: packed by a step, with the results of float64 numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain.kinds import Kind
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.test_launches import launches_of
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import random_floats, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

ROWS, UNITS, DEPTH = 40, 24, 32


def connected(
    dims: tuple[int, ...], bias: Array | None, fuse: FuseCode, code: OperandCode = OperandCode.TENSOR_FLOAT32
) -> Graph:
    """FULLY_CONNECTED of an input by the negated second input; the bias is the third one if it is no constant."""
    graph = Graph()
    source, negative = graph.input(dims, code), graph.temporary((UNITS, DEPTH), code)
    graph.operation(OperationCode.NEG, [graph.input((UNITS, DEPTH), code)], negative)
    numbers = graph.input((UNITS,)) if bias is None else graph.constant(bias.astype(dtype_of(code)), code)
    operands = [source, negative, numbers, graph.integer(fuse)]
    graph.operation(OperationCode.FULLY_CONNECTED, operands, graph.output((ROWS, UNITS), code))
    return graph


def kinds_of(graph: Graph) -> list[Kind]:
    return [Kind(step.kind) for launch in launches_of(graph) for step in launch.steps]


def check(device: Device, graph: Graph, dims: tuple[int, ...], bias: Array, fuse: FuseCode) -> None:
    rows, weights = random_floats(*dims), random_floats(UNITS, DEPTH, seed=1)
    inputs = [rows, weights, bias][: len(graph.model().main.input_indexes)]
    (result,) = results(device, graph.model(), inputs)
    expected = -rows.reshape(ROWS, DEPTH).astype(np.float64) @ weights.T.astype(np.float64) + bias
    np.testing.assert_allclose(result, np.maximum(expected, 0) if fuse == FuseCode.RELU else expected, 1e-5, 1e-5)


def test_without_bias_it_is_one_product(opencl_device: Device) -> None:
    graph = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY]
    check(opencl_device, graph, (ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("fuse", [FuseCode.NONE, FuseCode.RELU])
@pytest.mark.parametrize("dims", [(ROWS, DEPTH), (8, 5, DEPTH), (5, 4, 4, 16)], ids=str)
def test_bias_and_activation_are_an_addition(
    opencl_device: Device, dims: tuple[int, ...], fuse: FuseCode, is_constant: bool
) -> None:
    bias = random_floats(UNITS, seed=2)
    graph = connected(dims, bias if is_constant else None, fuse)
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY, Kind.ELEMENTWISE]
    check(opencl_device, graph, dims, bias, fuse)


def test_half_numbers_have_no_such_steps() -> None:
    graph = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE, OperandCode.TENSOR_FLOAT16)
    assert Kind.MULTIPLY not in kinds_of(graph)


@pytest.mark.parametrize(
    ("batches", "rows", "depth", "columns"),
    [(3, 40, 12, 33), (2, 5, 16, 9), (1, 60, 20, 3000), (4, 1, 8, 700), (2, 31, 8, 16), (1, 8, 4, 2)],
)
def test_softmax_of_products(opencl_device: Device, batches: int, rows: int, depth: int, columns: int) -> None:
    """Of all rows that a group of tiles has made, which it takes from a cache."""
    graph, beta = Graph(), 0.7
    left, right = graph.input((batches, rows, depth)), graph.input((batches, columns, depth))
    negative, product = graph.temporary((batches, columns, depth)), graph.temporary((batches, rows, columns))
    graph.operation(OperationCode.NEG, [right], negative)
    graph.operation(OperationCode.BATCH_MATMUL, [left, negative, graph.flag(False), graph.flag(True)], product)
    graph.operation(OperationCode.SOFTMAX, [product, graph.real(beta)], graph.output((batches, rows, columns)))
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY]
    data = [random_floats(batches, n, depth, seed=n) for n in (rows, columns)]
    (result,) = results(opencl_device, graph.model(), data)
    products = data[0].astype(np.float64) @ -data[1].astype(np.float64).transpose(0, 2, 1)
    exponents = np.exp(beta * products)
    np.testing.assert_allclose(result, exponents / exponents.sum(-1, keepdims=True), 2e-5, 1e-6)


def test_softmax_of_softmax_is_a_step(opencl_device: Device) -> None:
    graph, dims = Graph(), (2, 9, 21)
    product, once = graph.temporary(dims), graph.temporary(dims)
    left, right, negative = graph.input((2, 9, 8)), graph.input((2, 21, 8)), graph.temporary((2, 21, 8))
    graph.operation(OperationCode.NEG, [right], negative)
    graph.operation(OperationCode.BATCH_MATMUL, [left, negative, graph.flag(False), graph.flag(True)], product)
    graph.operation(OperationCode.SOFTMAX, [product, graph.real(1.0)], once)
    graph.operation(OperationCode.SOFTMAX, [once, graph.real(3.0)], graph.output(dims))
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY, Kind.SOFTMAX]
    data = [random_floats(2, n, 8, seed=n) for n in (9, 21)]
    (result,) = results(opencl_device, graph.model(), data)
    expected = data[0].astype(np.float64) @ -data[1].astype(np.float64).transpose(0, 2, 1)
    for beta in (1.0, 3.0):
        exponents = np.exp(beta * expected)
        expected = exponents / exponents.sum(-1, keepdims=True)
    np.testing.assert_allclose(result, expected, 2e-5, 1e-6)
