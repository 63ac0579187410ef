# SPDX-License-Identifier: Apache-2.0
"""Products by matrices that are made meanwhile: packed by a step if rows are many; against float64 numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.tasks import reads_of_residual, tasks_of
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
    rows = math.prod(dims) // DEPTH
    graph.operation(OperationCode.FULLY_CONNECTED, operands, graph.output((rows, UNITS), code))
    return graph


def kinds_of(graph: Graph) -> list[Kind]:
    return [Kind(step.kind) for launch in launches_of(graph) for step in launch.steps]


def check(device: Device, graph: Graph, dims: tuple[int, ...], bias: Array, fuse: FuseCode) -> None:
    rows, weights = random_floats(*dims), random_floats(UNITS, DEPTH, seed=1)
    inputs = [rows, weights, bias][: len(graph.model().main.input_indexes)]
    (result,) = results(device, graph.model(), inputs)
    expected = -rows.reshape(-1, DEPTH).astype(np.float64) @ weights.T.astype(np.float64) + bias
    np.testing.assert_allclose(result, np.maximum(expected, 0) if fuse == FuseCode.RELU else expected, 1e-5, 1e-5)


def test_without_bias_it_is_one_product(opencl_device: Device) -> None:
    graph = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY]
    check(opencl_device, graph, (ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("fuse", [FuseCode.NONE, FuseCode.RELU])
@pytest.mark.parametrize("dims", [(ROWS, DEPTH), (8, 5, DEPTH), (5, 4, 4, 16)], ids=str)
def test_bias_and_activation_are_done_with_the_product(
    opencl_device: Device, dims: tuple[int, ...], fuse: FuseCode, is_constant: bool
) -> None:
    bias = random_floats(UNITS, seed=2)
    graph = connected(dims, bias if is_constant else None, fuse)
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.PACK, Kind.MULTIPLY]
    check(opencl_device, graph, dims, bias, fuse)


@pytest.mark.parametrize("rows", [1, 12])
def test_few_rows_are_multiplied_by_weights_as_they_are(opencl_device: Device, rows: int) -> None:
    bias = random_floats(UNITS, seed=2)
    graph = connected((rows, DEPTH), bias, FuseCode.RELU)
    assert kinds_of(graph) == [Kind.ELEMENTWISE, Kind.MULTIPLY_FEW]
    check(opencl_device, graph, (rows, DEPTH), bias, FuseCode.RELU)


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("columns", [1, 5, 16, 31, 64, 77, 200])
@pytest.mark.parametrize(
    ("batches", "rows", "depth"), [(1, 1, 16), (3, 2, 33), (5, 4, 1), (1, 3, 200), (2, 12, 48), (2, 3, 31)]
)
def test_products_of_few_rows(
    opencl_device: Device, batches: int, rows: int, depth: int, columns: int, by_rows: bool
) -> None:
    left = random_floats(batches, rows, depth)
    right = random_floats(batches, *((columns, depth) if by_rows else (depth, columns)), seed=1)
    graph = Graph()
    operands = [graph.input(left.shape), graph.input(right.shape), graph.flag(False), graph.flag(by_rows)]
    graph.operation(OperationCode.BATCH_MATMUL, operands, graph.output((batches, rows, columns)))
    assert kinds_of(graph) == [Kind.MULTIPLY_FEW]
    (result,) = results(opencl_device, graph.model(), [left, right])
    matrices = right.astype(np.float64)
    expected = left.astype(np.float64) @ (matrices.transpose(0, 2, 1) if by_rows else matrices)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-5)


def test_half_numbers_have_no_such_steps() -> None:
    graph = connected((ROWS, DEPTH), np.zeros(UNITS), FuseCode.NONE, OperandCode.TENSOR_FLOAT16)
    assert Kind.MULTIPLY not in kinds_of(graph)


SIZES = [
    *((3, 40, 12, 33), (2, 13, 16, 9), (1, 60, 20, 3000), (2, 31, 8, 16), (1, 18, 4, 2)),
    *((4, 1, 8, 700), (2, 12, 20, 45), (1, 3, 64, 5), (5, 2, 33, 16), (2, 5, 16, 9), (1, 8, 4, 2)),  # few rows
    (6, 4, 64, 300),  # in several tasks
]


class Scores:
    """Products of rows and negated columns, of which operations in order make the output of a graph."""

    def __init__(self, batches: int, rows: int, depth: int, columns: int) -> None:
        self.graph, self.dims = Graph(), (batches, rows, columns)
        self.data = [random_floats(batches, n, depth, seed=n) for n in (rows, columns)]
        left, right = (self.graph.input(one.shape) for one in self.data)
        negative, self.now = self.graph.temporary(self.data[1].shape), self.graph.temporary(self.dims)
        self.graph.operation(OperationCode.NEG, [right], negative)
        operands = [left, negative, self.graph.flag(False), self.graph.flag(True)]
        self.graph.operation(OperationCode.BATCH_MATMUL, operands, self.now)
        self.expected = self.data[0].astype(np.float64) @ -self.data[1].astype(np.float64).transpose(0, 2, 1)

    def scale(self, factor: float, *, is_last: bool = False) -> None:
        number = self.graph.constant(np.full(1, factor, np.float32))
        self._add(OperationCode.MUL, [self.now, number, self.graph.integer(FuseCode.NONE)], is_last)
        self.expected *= factor

    def mask(self, *dims: int) -> None:
        numbers = random_floats(*dims, seed=5)
        self.data.append(numbers)
        self._add(OperationCode.ADD, [self.graph.input(dims), self.now, self.graph.integer(FuseCode.NONE)], False)
        self.expected = self.expected + numbers

    def softmax(self, beta: float, *, is_last: bool = False) -> None:
        self._add(OperationCode.SOFTMAX, [self.now, self.graph.real(beta)], is_last)
        exponents = np.exp(beta * self.expected)
        self.expected = exponents / exponents.sum(-1, keepdims=True)

    def check(self, device: Device, *kinds: Kind) -> None:
        product = [Kind.PACK, Kind.MULTIPLY] if self.dims[1] > 12 else [Kind.MULTIPLY_FEW]
        assert kinds_of(self.graph) == [Kind.ELEMENTWISE, *product, *kinds]
        (result,) = results(device, self.graph.model(), self.data)
        np.testing.assert_allclose(result, self.expected, 2e-5, 1e-6)

    def _add(self, code: OperationCode, operands: list[int], is_last: bool) -> None:
        self.now = self.graph.output(self.dims) if is_last else self.graph.temporary(self.dims)
        self.graph.operation(code, operands, self.now)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_softmax_of_products(opencl_device: Device, sizes: tuple[int, int, int, int]) -> None:
    """Of all rows that a group of tiles has made, which it takes from a cache."""
    scores = Scores(*sizes)
    scores.softmax(0.7, is_last=True)
    scores.check(opencl_device)


@pytest.mark.parametrize(
    ("sizes", "is_one_row"),
    [*((sizes, True) for sizes in SIZES), *((sizes, False) for sizes in SIZES if sizes[3] >= 16)],  # of whole vectors
    ids=str,
)
def test_scaled_and_masked_softmax_of_products(
    opencl_device: Device, sizes: tuple[int, int, int, int], is_one_row: bool
) -> None:
    """As attention has it: what is done with every product comes between, with the rows that a group has made."""
    scores = Scores(*sizes)
    scores.scale(0.3)
    scores.mask(1, 1 if is_one_row else scores.dims[1], scores.dims[2])
    scores.softmax(1.3, is_last=True)
    scores.check(opencl_device)


def test_what_follows_softmax_is_a_step(opencl_device: Device) -> None:
    scores = Scores(2, 15, 8, 21)
    scores.softmax(1.0)
    scores.softmax(3.0, is_last=True)
    scores.check(opencl_device, Kind.SOFTMAX)
    scores = Scores(2, 15, 8, 21)
    scores.softmax(1.0)
    scores.scale(3.0, is_last=True)
    scores.check(opencl_device, Kind.ELEMENTWISE)


@pytest.mark.parametrize("rows", [2, 64])
def test_products_of_parts_wait_for_all_of_their_right_side(rows: int) -> None:
    """Where as many numbers are read of the right side as are made, rows of both are no matter of each other."""
    scores = Scores(2, rows, 64, 64)
    scores.scale(0.3, is_last=True)
    steps = [step for launch in launches_of(scores.graph) for step in launch.steps]
    product = steps[-1]
    assert product.kind in (Kind.MULTIPLY, Kind.MULTIPLY_FEW)
    assert product.epilogue is not None
    tasks = tasks_of(product, 4)
    assert len(tasks) > 1
    shape = product.residual_shape
    assert shape[0] * shape[1] == 2 * 64 * 64
    for task in tasks:
        first, last = reads_of_residual(product, task)[0]
        batches = task.pixels[0] // rows, -(-task.pixels[1] // rows)
        assert (first, last) == tuple(batch * shape[0] // 2 for batch in batches)


def test_a_softmax_has_all_products_of_its_rows() -> None:
    """One task has all columns; without it, columns of a matrix are shared among tasks."""
    tasks = {}
    for has_softmax in (False, True):
        scores = Scores(3, 2, 64, 700)
        scores.scale(0.3, is_last=not has_softmax)
        if has_softmax:
            scores.softmax(1.0, is_last=True)
        product = [step for launch in launches_of(scores.graph) for step in launch.steps][-1]
        assert product.kind == Kind.MULTIPLY_FEW
        tasks[has_softmax] = tasks_of(product, 8)
    assert len({task.channels for task in tasks[False]}) > 1
    assert [(task.pixels, task.channels) for task in tasks[True]] == [((2 * b, 2 * b + 2), (0, 700)) for b in range(3)]
