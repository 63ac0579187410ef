# SPDX-License-Identifier: Apache-2.0
"""GATHER and EMBEDDING_LOOKUP as steps of a chain: numpy's answers, and complaints of wrong indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.chain.kinds import Kind
from gpu_driver.launch import Launch
from gpu_driver.lowering import Lowering
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.operand import dtype_of
from tests.gpu_driver.chain.running import simulate_groups
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.profiles import CPU_PROFILE
from tests.gpu_driver.running import prepare, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.driver import Device
    from nn_runtime.operand import Array, Dimensions

FLOAT, HALF, INT = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_INT32
QUANT8, SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
SUB, GATHER, LOOKUP = OperationCode.SUB, OperationCode.GATHER, OperationCode.EMBEDDING_LOOKUP


class Words:
    """Rows of tables, by indices that a run brings, less each other; with the answers that numpy gives."""

    def __init__(self, code: OperandCode, table: Dimensions, chosen: int) -> None:
        self.graph, self.rng = Graph(), np.random.default_rng(5)
        self.code, self.table = code, table
        self.indices = self.rng.integers(0, table[0], chosen).astype(np.int32)
        self.place = self.graph.input((chosen,), INT)
        self.made: list[tuple[int, Array]] = []

    def numbers(self, dims: Dimensions) -> Array:
        return self.rng.integers(-50, 50, dims).astype(dtype_of(self.code))

    def look_up(self) -> None:
        """Rows of a constant table."""
        table = self.numbers(self.table)
        self._append(LOOKUP, [self.place, self.graph.constant(table, self.code)], table[self.indices])

    def gather(self, axis: int) -> None:
        """Slices along an axis of what was made last, by known indices."""
        (last, values), dims = self.made[-1], self.made[-1][1].shape
        rows = self.rng.integers(0, dims[axis], dims[axis]).astype(np.int32)
        inputs = [last, self.graph.integer(axis), self.graph.constant(rows)]
        self._append(GATHER, inputs, np.take(values, rows, axis))

    def subtract(self, *, is_output: bool = False) -> None:
        (first, a), (second, b) = self.made[-2:]
        self._append(SUB, [first, second, self.graph.integer(FuseCode.NONE)], a - b, is_output=is_output)

    def launches(self) -> Sequence[Launch]:
        lowering = Lowering(self.graph.model(), CPU_PROFILE)
        return [one for one in lowering.lower(0, lowering.static_inputs()).commands if isinstance(one, Launch)]

    def answer(self, device: Device, indices: Array) -> Array:
        _, wanted = self.made[-1]
        result = np.empty(wanted.shape, wanted.dtype)
        run(prepare(device, self.graph.model()), request([indices], [result]))
        return result

    def check(self, device: Device) -> None:
        assert np.array_equal(self.answer(device, self.indices), self.made[-1][1])

    def _append(self, code: OperationCode, inputs: list[int], values: Array, *, is_output: bool = False) -> None:
        made = (self.graph.output if is_output else self.graph.temporary)(values.shape, self.code)
        self.graph.operation(code, inputs, made)
        self.made.append((made, values))


def drawn(code: OperandCode, table: Dimensions, chosen: int) -> Words:
    words = Words(code, table, chosen)
    words.look_up()
    words.look_up()
    words.subtract()
    for axis in range(len(table)):
        words.gather(axis)
        words.subtract()
    words.subtract(is_output=True)
    return words


TABLES = [((30, 64), 9), ((7, 3, 20), 5), ((40, 5), 33), ((11, 1), 64), ((300, 130), 200)]


@pytest.mark.parametrize(("table", "chosen"), TABLES, ids=str)
@pytest.mark.parametrize("code", [FLOAT, HALF], ids=lambda code: code.name)
def test_rows_by_index(opencl_device: Device, code: OperandCode, table: Dimensions, chosen: int) -> None:
    drawn(code, table, chosen).check(opencl_device)


def test_lookups_and_what_follows_are_one_launch() -> None:
    (launch,) = drawn(FLOAT, (30, 64), 9).launches()
    assert [step.kind for step in launch.steps].count(Kind.GATHER) == 4


@pytest.mark.parametrize("wrong", [-1, 30, 2**31 - 1, -(2**31)])
def test_wrong_indices_are_complained_of(opencl_device: Device, wrong: int) -> None:
    words = drawn(FLOAT, (30, 64), 9)
    indices = words.indices.copy()
    indices[4] = wrong
    with pytest.raises(HalError, match=r"EMBEDDING_LOOKUP: lookups \(input 0\) must be in \[0, 30\)") as caught:
        words.answer(opencl_device, indices)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    words.check(opencl_device)


@pytest.mark.parametrize(("groups", "queues"), [(1, 3), (2, 5), (4, 2)])
def test_any_number_of_groups_and_queues(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, groups: int, queues: int
) -> None:
    simulate_groups(monkeypatch, groups, queues)
    drawn(FLOAT, (300, 130), 200).check(opencl_device)


@pytest.mark.parametrize("code", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("dims", [(9, 40), (5, 130), (33, 16)], ids=str)
def test_bytes_are_gathered_and_reduced(opencl_device: Device, code: OperandCode, dims: Dimensions) -> None:
    """Rows by index, and the greatest and least of each row, of codes with one scale."""
    graph, rng, dtype = Graph(), np.random.default_rng(8), dtype_of(code)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max + 1, dims).astype(dtype) for _ in range(2))
    indices = rng.integers(0, dims[0], 12).astype(np.int32)
    x, y = (graph.input(dims, code, 0.5, 3) for _ in range(2))
    place = graph.input(indices.shape, INT)

    def emit(operation: OperationCode, inputs: list[int], size: Dimensions, *, is_output: bool = False) -> int:
        made = (graph.output if is_output else graph.temporary)(size, code, 0.5, 3)
        graph.operation(operation, inputs, made)
        return made

    rows = (len(indices), dims[1])
    greater, less = (emit(one, [x, y], dims) for one in (OperationCode.MAXIMUM, OperationCode.MINIMUM))
    upper, lower = (emit(GATHER, [one, graph.integer(0), place], rows) for one in (greater, less))
    axis, keeps = graph.constant(np.array([1], np.int32)), graph.flag(True)
    least = emit(OperationCode.REDUCE_MIN, [upper, axis, keeps], (len(indices), 1))
    most = emit(OperationCode.REDUCE_MAX, [lower, axis, keeps], (len(indices), 1))
    emit(OperationCode.MAXIMUM, [lower, least], rows, is_output=True)
    emit(OperationCode.MINIMUM, [upper, most], rows, is_output=True)
    lowering = Lowering(graph.model(), CPU_PROFILE)
    (launch,) = lowering.lower(0, lowering.static_inputs()).commands
    assert isinstance(launch, Launch)
    assert {Kind.GATHER, Kind.REDUCE} <= {step.kind for step in launch.steps}
    results = [np.empty(rows, dtype) for _ in range(2)]
    run(prepare(opencl_device, graph.model()), request([a, b, indices], results))
    above, below = np.maximum(a, b)[indices], np.minimum(a, b)[indices]
    assert np.array_equal(results[0], np.maximum(below, above.min(axis=1, keepdims=True)))
    assert np.array_equal(results[1], np.minimum(above, below.max(axis=1, keepdims=True)))
