# SPDX-License-Identifier: Apache-2.0
"""Launches that give way to chains: which programs run, and values by float64 numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.chain.test_launches import launches_of
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from gpu_driver.driver import Device

NORMALIZE, SUB = OperationCode.L2_NORMALIZATION, OperationCode.SUB
DIMS = (9, 64)
CHAIN, ALONE, POWER = "chain.cl", "normalization.cl", "broadcast.cl"


class Calculation:
    """Operations of a chain, and normalisations and powers, which are not; beside every operand what it should hold."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.inputs = list(np.random.default_rng(7).uniform(1, 3, (2, *DIMS)).astype(np.float32))
        self.values = {self.graph.input(DIMS): one.astype(np.float64) for one in self.inputs}
        self.x, self.y = self.values
        exponents = np.linspace(0.5, 2, DIMS[1], dtype=np.float32)
        self.exponents = self.graph.constant(exponents)
        self.values[self.exponents] = exponents.astype(np.float64)
        self.outputs: list[int] = []

    def chain(self, first: int, second: int, count: int = 4, *, is_output: bool = False) -> int:
        """Subtract so many times."""
        for place in range(count):
            made = self._made(is_output and place == count - 1)
            self.graph.operation(SUB, [first, second, self.graph.integer(FuseCode.NONE)], made)
            self.values[made] = self.values[first] - self.values[second]
            first = made
        return first

    def normalised(self, source: int, *, is_output: bool = False) -> int:
        """Every row by its length."""
        made = self._made(is_output)
        self.graph.operation(NORMALIZE, [source], made)
        self.values[made] = self.values[source] / np.linalg.norm(self.values[source], axis=-1, keepdims=True)
        return made

    def power(self, source: int, *, is_output: bool = False) -> int:
        """To a constant exponent for each column."""
        made = self._made(is_output)
        self.graph.operation(OperationCode.POW, [source, self.exponents], made)
        self.values[made] = self.values[source] ** self.values[self.exponents]
        return made

    def _made(self, is_output: bool) -> int:
        made = self.graph.output(DIMS) if is_output else self.graph.temporary(DIMS)
        self.outputs += [made] * is_output
        return made

    def check(self, device: Device, programs: list[str]) -> None:
        assert [launch.kernel.source for launch in launches_of(self.graph)] == programs
        results = [np.empty(DIMS, np.float32) for _ in self.outputs]
        run(prepare(device, self.graph.model()), request(self.inputs, results))
        for result, output in zip(results, self.outputs, strict=True):
            np.testing.assert_allclose(result, self.values[output], rtol=1e-5, atol=4e-5)


def test_what_needs_nothing_of_a_chain_is_done_before_it(opencl_device: Device) -> None:
    graph = Calculation()
    now = graph.chain(graph.x, graph.y)
    graph.chain(now, graph.normalised(graph.normalised(graph.y)), is_output=True)
    graph.check(opencl_device, [ALONE, ALONE, CHAIN])


def test_what_a_chain_does_not_need_is_done_after_it(opencl_device: Device) -> None:
    graph = Calculation()
    now = graph.chain(graph.y, graph.x)
    graph.normalised(graph.chain(graph.x, now, 1), is_output=True)
    graph.chain(now, graph.y, is_output=True)
    graph.check(opencl_device, [CHAIN, ALONE])


def test_what_must_be_done_between_two_chains_stays_there(opencl_device: Device) -> None:
    graph = Calculation()
    now = graph.chain(graph.y, graph.x)
    number = graph.chain(graph.chain(graph.x, now, 1), now, 1)
    graph.chain(graph.chain(graph.normalised(number), graph.y), graph.x, is_output=True)
    graph.check(opencl_device, [CHAIN, ALONE, CHAIN])


def test_what_writes_where_a_chain_reads_is_done_after_it(opencl_device: Device) -> None:
    """The second normalisation, in place of the first, which the chain before it reads."""
    graph = Calculation()
    now = graph.chain(graph.y, graph.x)
    number = graph.chain(graph.chain(graph.x, now, 1), now, 1)
    first = graph.normalised(number)
    now = graph.chain(graph.y, first)
    graph.chain(now, graph.normalised(first), is_output=True)
    graph.check(opencl_device, [CHAIN, ALONE, CHAIN, ALONE, CHAIN])


def test_what_has_the_same_constant_may_change_places(opencl_device: Device) -> None:
    graph = Calculation()
    now = graph.chain(graph.y, graph.x)
    graph.power(graph.chain(graph.x, now, 1), is_output=True)
    graph.chain(now, graph.power(graph.y), is_output=True)
    graph.check(opencl_device, [POWER, CHAIN, POWER])


@pytest.mark.parametrize("is_first", [False, True])
def test_branches_share_the_chains_before_and_after(opencl_device: Device, is_first: bool) -> None:
    """Both branches have a normalisation between chains: two chains, whatever the order of the model."""
    graph = Calculation()
    first = graph.normalised(graph.chain(graph.x, graph.chain(graph.y, graph.x), 1))
    if is_first:
        first = graph.chain(first, graph.y, is_output=True)
    second = graph.normalised(graph.chain(graph.y, graph.chain(graph.x, graph.y), 1))
    if not is_first:
        first = graph.chain(first, graph.y, is_output=True)
    graph.chain(second, first, is_output=True)
    graph.check(opencl_device, [CHAIN, ALONE, ALONE, CHAIN])


def test_what_the_device_measures_is_kept_until_all_is_done(opencl_device: Device) -> None:
    """A selection of boxes goes before chains, whose own memory is not where it left their number."""
    graph, dims, classes, rows = Graph(), (1, 8, 8, 8), 8, 8

    def convolved(source: int) -> int:
        made = graph.temporary(dims)
        weights = graph.constant(np.full((8, 1, 1, 8), 1 / 8, np.float32))
        bias, numbers = graph.constant(np.zeros(8, np.float32)), (0, 0, 0, 0, 1, 1, FuseCode.NONE)
        graph.operation(OperationCode.CONV_2D, [source, weights, bias, *map(graph.integer, numbers)], made)
        return made

    def scaled(source: int, size: tuple[int, ...]) -> int:
        made = graph.temporary(size)
        graph.operation(NORMALIZE, [source], made)
        return made

    image = graph.input(dims)
    boxes, batch = graph.input((rows, 4 * classes)), graph.input((rows,), OperandCode.TENSOR_INT32)
    first = convolved(image)
    ends = [convolved(convolved(scaled(first, dims))) for _ in range(2)]
    graph.operation(OperationCode.ADD, [*ends, graph.integer(FuseCode.NONE)], graph.output(dims))
    scores = graph.input((rows, classes))
    limits = map(graph.real, (0.4, 0.5, 0.1))
    graph.operation(
        OperationCode.BOX_WITH_NMS_LIMIT,
        [
            scaled(scores, (rows, classes)),
            boxes,
            batch,
            graph.real(0.1),
            graph.integer(-1),
            graph.integer(0),
            *limits,
        ],
        *(graph.output((0,)), graph.output((0, 4))),
        *(graph.output((0,), OperandCode.TENSOR_INT32) for _ in range(2)),
    )
    rng = np.random.default_rng(0)
    apart = np.tile(np.float32([0, 0, 10, 10]), (rows, classes)) + 20 * np.arange(rows, dtype=np.float32)[:, np.newaxis]
    chances = rng.uniform(0.2, 1, (rows, classes)).astype(np.float32)
    inputs = [rng.standard_normal(dims).astype(np.float32), apart, np.zeros(rows, np.int32), chances]
    outputs = [np.empty(dims, np.float32), *(np.empty(size, np.float32) for size in (64, (64, 4)))]
    outputs += [np.empty(64, np.int32) for _ in range(2)]
    result = run(prepare(opencl_device, graph.model()), request(inputs, outputs))
    chosen = rows * (classes - 1)  # not the background
    assert [shape.dimensions for shape in result.output_shapes[1:]] == [(chosen,), (chosen, 4), (chosen,), (chosen,)]
