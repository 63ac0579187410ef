# SPDX-License-Identifier: Apache-2.0
"""Parts of rows that element-wise steps read where they lie: no copies, and what float64 gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from gpu_driver.chain.kinds import Kind
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16
ADD, MUL = OperationCode.ADD, OperationCode.MUL
LOGISTIC, TANH, NEG = OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.NEG
TOLERANCE = {FLOAT: 1e-5, HALF: 5e-3}
Number: TypeAlias = "tuple[int, npt.NDArray[np.float64]]"
"""An operand, and what it should hold."""
FUNCTIONS = {LOGISTIC: lambda x: 1 / (1 + np.exp(-x)), TANH: np.tanh, NEG: np.negative}


class Parts:
    """Operations on parts of tensors, and beside every operand what float64 says."""

    def __init__(self, code: OperandCode = FLOAT) -> None:
        self.graph, self.rng, self.code = Graph(), np.random.default_rng(7), code
        self.inputs: list[Array] = []
        self.expected: list[npt.NDArray[np.float64]] = []

    def input(self, *dims: int) -> Number:
        values = self.rng.uniform(-2, 2, dims).astype(dtype_of(self.code))
        self.inputs.append(values)
        return self.single(NEG, (self.graph.input(dims, self.code), values.astype(np.float64)))

    def single(self, code: OperationCode, a: Number) -> Number:
        return self._made(code, [a[0]], FUNCTIONS[code](a[1]))

    def pair(self, code: OperationCode, a: Number, b: Number) -> Number:
        expected = a[1] + b[1] if code == ADD else a[1] * b[1]
        return self._made(code, [a[0], b[0], self.graph.integer(FuseCode.NONE)], expected)

    def part(self, a: Number, begin: Dimensions, size: Dimensions) -> Number:
        places = tuple(slice(first, first + count) for first, count in zip(begin, size, strict=True))
        numbers = [self.graph.constant(np.array(one, np.int32)) for one in (begin, size)]
        return self._made(OperationCode.SLICE, [a[0], *numbers], a[1][places])

    def finish(self, *numbers: Number) -> None:
        for operand, expected in numbers:
            self.graph.operation(NEG, [operand], self.graph.output(expected.shape, self.code))
            self.expected.append(-expected)

    def kinds(self) -> list[Kind]:
        lowering = Lowering(self.graph.model(), replace(CPU_PROFILE, compute_units=2))
        (launch,) = lowering.lower(0, lowering.static_inputs()).commands
        assert isinstance(launch, Launch)
        return [step.kind for step in launch.steps]

    def check(self, device: Device) -> None:
        results: list[Array] = [np.empty(one.shape, dtype_of(self.code)) for one in self.expected]
        run(prepare(device, self.graph.model()), request(self.inputs, results))
        tolerance = TOLERANCE[self.code]
        for result, expected in zip(results, self.expected, strict=True):
            np.testing.assert_allclose(result, expected, tolerance, tolerance)

    def _made(self, code: OperationCode, inputs: list[int], expected: npt.NDArray[np.float64]) -> Number:
        made = self.graph.temporary(expected.shape, self.code)
        self.graph.operation(code, inputs, made)
        return made, expected


def cell(parts: Parts, rows: int, size: int) -> None:
    """The gates of an LSTM cell, parts of one tensor each."""
    gates, state = parts.input(rows, 4 * size), parts.input(rows, size)
    read, forget, new, write = (parts.part(gates, (0, at * size), (rows, size)) for at in range(4))
    kept = parts.pair(MUL, parts.single(LOGISTIC, forget), state)
    taken = parts.pair(MUL, parts.single(LOGISTIC, read), parts.single(TANH, new))
    state = parts.pair(ADD, kept, taken)
    parts.finish(parts.pair(MUL, parts.single(LOGISTIC, write), parts.single(TANH, state)), state)


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("size", [16, 20, 64, 130])
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_gates_are_read_where_they_lie(opencl_device: Device, code: OperandCode, size: int, rows: int) -> None:
    parts = Parts(code)
    cell(parts, rows, size)
    if rows == 1 or size >= 64:
        assert set(parts.kinds()) == {Kind.ELEMENTWISE}
    parts.check(opencl_device)


@pytest.mark.parametrize("size", [5, 8, 600, 3000])
@pytest.mark.parametrize("rows", [1, 5])
def test_short_and_long_parts_are_right(opencl_device: Device, size: int, rows: int) -> None:
    parts = Parts()
    cell(parts, rows, size)
    parts.check(opencl_device)


def test_a_row_of_several_is_a_part(opencl_device: Device) -> None:
    """One step's share of what an unrolled loop reads, as a row of its own."""
    parts = Parts()
    every, state = parts.input(6, 96), parts.input(1, 32)
    for at in (0, 2, 5):
        gate, new = (parts.part(every, (at, place), (1, 32)) for place in (32, 64))
        state = parts.pair(ADD, parts.pair(MUL, parts.single(LOGISTIC, gate), state), parts.single(TANH, new))
    parts.finish(state)
    assert set(parts.kinds()) == {Kind.ELEMENTWISE}
    parts.check(opencl_device)


def test_what_others_read_is_copied(opencl_device: Device) -> None:
    """A SOFTMAX reads the first half, too, and the caller the second."""
    parts = Parts()
    both = parts.input(3, 160)
    first, second = (parts.part(both, (0, at), (3, 80)) for at in (0, 80))
    exponents = np.exp(first[1])
    beta = [first[0], parts.graph.real(1.0)]
    softmax = parts._made(OperationCode.SOFTMAX, beta, exponents / exponents.sum(axis=-1, keepdims=True))
    parts.finish(parts.pair(MUL, first, second), parts.pair(ADD, softmax, first))
    assert parts.kinds().count(Kind.COPY) == 1
    parts.check(opencl_device)


def test_parts_of_several_rows_at_once_are_copied(opencl_device: Device) -> None:
    """Rows that are not next to each other in the source, and rows of a picture."""
    parts = Parts()
    picture = parts.input(2, 6, 5, 48)
    inner = parts.part(picture, (0, 2, 1, 16), (2, 3, 3, 16))
    parts.finish(parts.pair(MUL, inner, parts.single(TANH, inner)))
    assert Kind.COPY in parts.kinds()
    parts.check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    parts = Parts()
    cell(parts, 300, 70)
    parts.check(opencl_device)
