# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED by weights that are made meanwhile: a product of matrices, with the results of float64 numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.graphs import Graph
from tests.gpu_driver.passes.simplifying import operations_left, random_floats, results

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

ROWS, UNITS, DEPTH = 40, 24, 32


def connected(
    dims: tuple[int, ...], bias: Array, fuse: FuseCode, code: OperandCode = OperandCode.TENSOR_FLOAT32
) -> Graph:
    """FULLY_CONNECTED of an input by the negated second input."""
    graph = Graph()
    source, negative = graph.input(dims, code), graph.temporary((UNITS, DEPTH), code)
    graph.operation(OperationCode.NEG, [graph.input((UNITS, DEPTH), code)], negative)
    operands = [source, negative, graph.constant(bias.astype(dtype_of(code)), code), graph.integer(fuse)]
    graph.operation(OperationCode.FULLY_CONNECTED, operands, graph.output((ROWS, UNITS), code))
    return graph


def check(device: Device, graph: Graph, dims: tuple[int, ...], bias: Array, fuse: FuseCode) -> None:
    rows, weights = random_floats(*dims), random_floats(UNITS, DEPTH, seed=1)
    (result,) = results(device, graph.model(), [rows, weights])
    expected = -rows.reshape(ROWS, DEPTH).astype(np.float64) @ weights.T.astype(np.float64) + bias
    np.testing.assert_allclose(result, np.maximum(expected, 0) if fuse == FuseCode.RELU else expected, 1e-5, 1e-5)


def test_without_bias_it_is_one_product(opencl_device: Device) -> None:
    graph = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)
    assert operations_left(graph.model()) == ["NEG", "BATCH_MATMUL"]
    check(opencl_device, graph, (ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)


@pytest.mark.parametrize("fuse", [FuseCode.NONE, FuseCode.RELU])
@pytest.mark.parametrize("dims", [(ROWS, DEPTH), (8, 5, DEPTH), (5, 4, 4, 16)], ids=str)
def test_bias_and_activation_are_an_addition(opencl_device: Device, dims: tuple[int, ...], fuse: FuseCode) -> None:
    bias = random_floats(UNITS, seed=2)
    graph = connected(dims, bias, fuse)
    before = ["RESHAPE"] if dims != (ROWS, DEPTH) else []
    assert operations_left(graph.model()) == ["NEG", *before, "BATCH_MATMUL", "ADD"]
    check(opencl_device, graph, dims, bias, fuse)


def test_half_numbers_and_constant_weights_stay() -> None:
    half = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE, OperandCode.TENSOR_FLOAT16)
    assert operations_left(half.model()) == ["NEG", "FULLY_CONNECTED"]
    graph = Graph()
    numbers = [graph.constant(one) for one in (random_floats(UNITS, DEPTH), random_floats(UNITS, seed=1))]
    operands = [graph.input((ROWS, DEPTH)), *numbers, graph.integer(FuseCode.NONE)]
    graph.operation(OperationCode.FULLY_CONNECTED, operands, graph.output((ROWS, UNITS)))
    assert operations_left(graph.model()) == ["FULLY_CONNECTED"]
