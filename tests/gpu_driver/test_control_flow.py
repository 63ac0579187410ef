# SPDX-License-Identifier: Apache-2.0
"""IF and WHILE inside the driver: nested, on device memory alone, with a timeout for each loop, of unknown sizes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpu_driver import prepared_model as cpu_prepared_model
from cpu_driver.driver import Device as CpuDevice
from gpu_driver import prepared_model
from gpu_driver.device import inline
from gpu_driver.device.one_thread_time import one_thread_ns
from gpu_driver.driver import Device
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import (
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Priority,
    Subgraph,
)
from tests.conftest import WAKE_NS
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import fresh, memory_of, prepare, run
from tests.nn_runtime.graphs import nest_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, Dimensions

BOOL, FLOAT = OperandCode.TENSOR_BOOL8, OperandCode.TENSOR_FLOAT32


class Outer(Graph):
    """A graph that refers to others."""

    def model_operand(self, index: int) -> int:
        location = DataLocation(offset=index)
        return self._add(Operand(OperandCode.MODEL, (), lifetime=OperandLifeTime.SUBGRAPH, location=location))

    def subgraph(self) -> Subgraph:
        return self.model().main


def less_than(limit: float, dims: Dimensions) -> Subgraph:
    """The condition counter < limit over (counter [1], value)."""
    graph = Graph()
    counter = graph.input((1,))
    graph.input(dims)
    graph.operation(
        OperationCode.LESS, [counter, graph.constant(np.array([limit], np.float32))], graph.output((1,), BOOL)
    )
    return graph.model().main


def doubling(dims: Dimensions, branches: tuple[int, int]) -> Subgraph:
    """The body counter + 1, value + (counter < 3 ? value : counter), by an IF."""
    graph = Outer()
    counter, value = graph.input((1,)), graph.input(dims)
    next_counter, next_value = graph.output((1,)), graph.output(dims)
    one, three = graph.constant(np.ones(1, np.float32)), graph.constant(np.full(1, 3, np.float32))
    none = graph.integer(FuseCode.NONE)
    is_low, addend = graph.temporary((1,), BOOL), graph.temporary(dims)
    graph.operation(OperationCode.ADD, [counter, one, none], next_counter)
    graph.operation(OperationCode.LESS, [counter, three], is_low)
    graph.operation(OperationCode.IF, [is_low, *map(graph.model_operand, branches), counter, value], addend)
    graph.operation(OperationCode.ADD, [value, addend, none], next_value)
    return graph.subgraph()


def same(dims: Dimensions) -> Subgraph:
    graph = Graph()
    graph.input((1,))
    zero = graph.constant(np.zeros(1, np.float32))
    graph.operation(OperationCode.ADD, [graph.input(dims), zero, graph.integer(FuseCode.NONE)], graph.output(dims))
    return graph.model().main


def count_everywhere(dims: Dimensions) -> Subgraph:
    graph = Graph()
    counter, value = graph.input((1,)), graph.input(dims)
    zeros, none = graph.temporary(dims), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.SUB, [value, value, none], zeros)
    graph.operation(OperationCode.ADD, [zeros, counter, none], graph.output(dims))
    return graph.model().main


def loop(limit: float, dims: Dimensions, inner: Dimensions | None = None) -> Model:
    """WHILE counter < limit; `inner`: the value's dimensions in the models referred to."""
    inner = dims if inner is None else inner
    graph = Outer()
    counter, value = graph.input((1,)), graph.input(dims)
    outputs = graph.output((1,)), graph.output(inner)
    graph.operation(OperationCode.WHILE, [graph.model_operand(0), graph.model_operand(1), counter, value], *outputs)
    models = less_than(limit, inner), doubling(inner, (2, 3)), same(inner), count_everywhere(inner)
    return replace(graph.model(), referenced=models)


def execute(driver: Device | CpuDevice, model: Model, inputs: Sequence[Array], timeout_ns: int | None) -> list[Array]:
    assert all(driver.get_supported_operations(model))
    prepared = driver.prepare_model(model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None)
    outputs = [np.full_like(array, -1) for array in inputs]
    try:
        for _ in range(2):
            prepared.execute_synchronously(request(inputs, outputs), False, None, timeout_ns)
    finally:
        prepared.close()
    return outputs


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 2, 7])
def test_a_loop_around_a_branch(opencl_device: Device, limit: int, unknown: bool) -> None:
    model = loop(limit, (2, 3), (0, 3) if unknown else None)
    inputs = np.zeros(1, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    actual = execute(opencl_device, model, inputs, None)
    for got, wanted in zip(actual, execute(CpuDevice(), model, inputs, None), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("count", "is_small"), [(200_000, True), (5_000_000, False)])
def test_small_loops_are_computed_by_the_calling_thread(
    count: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would be woken for every turn and its branch."""
    monkeypatch.setattr(inline, "WAKE_NS", WAKE_NS)
    model = loop(7, (count,))
    assert one_thread_ns(model) > 2 * WAKE_NS
    assert inline.is_small(model, 2) == is_small


def test_launches_of_a_loop_are_the_loops(opencl_device: Device) -> None:
    """In a profile, whatever numbers they have in the models that it and the branch in its body refer to."""
    graph = Outer()
    counter, value = graph.input((1,)), graph.input((2, 3))
    positive, counted, doubled = graph.temporary((2, 3)), graph.temporary((1,)), graph.temporary((2, 3))
    graph.operation(OperationCode.ABS, [value], positive)
    models = [graph.model_operand(0), graph.model_operand(1)]
    graph.operation(OperationCode.WHILE, [*models, counter, positive], counted, doubled)
    graph.operation(OperationCode.NEG, [doubled], graph.output((2, 3)))
    referenced = less_than(3, (2, 3)), doubling((2, 3), (2, 3)), same((2, 3)), count_everywhere((2, 3))
    prepared = prepare(opencl_device, replace(graph.model(), referenced=referenced))
    inputs, output = [np.zeros(1, np.float32), np.ones((2, 3), np.float32)], np.empty((2, 3), np.float32)
    _, profile = prepared.execute_profiled(request(inputs, [output]), None, None)
    np.testing.assert_array_equal(output, -8)
    owners = [row.operations for row in profile.rows if row.operations]
    assert owners == sorted(owners)
    assert set(owners) == {(0,), (1,), (2,)}
    assert owners.count((1,)) > 3 * 4


def test_an_argument_that_no_turn_changes_is_there_in_every_turn(opencl_device: Device) -> None:
    body, graph = Graph(), Outer()
    given = body.input((1,)), body.input((1,))
    body.operation(OperationCode.ADD, [*given, body.integer(FuseCode.NONE)], body.output((1,)))
    arguments = graph.input((1,)), graph.input((1,))
    models = graph.model_operand(0), graph.model_operand(1)
    graph.operation(OperationCode.WHILE, [*models, *arguments], graph.output((1,)))
    model = replace(graph.model(), referenced=(less_than(10, (1,)), body.model().main))
    result = np.full(1, np.nan, np.float32)
    run(prepare(opencl_device, model), request([np.zeros(1, np.float32), np.full(1, 3, np.float32)], [result]))
    assert result == 12


def test_a_turn_moves_only_its_decisions(opencl_device: Device) -> None:
    moved = []
    inputs = np.zeros(1, np.float32), np.ones((64, 64), np.float32)
    for limit in (5, 25):
        model = loop(limit, (64, 64))
        prepared = opencl_device.prepare_model(
            model, ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
        )
        outputs = [np.empty_like(array) for array in inputs]
        prepared.execute_synchronously(request(inputs, outputs), False, None, None)
        before = opencl_device.statistics()
        prepared.execute_synchronously(request(inputs, outputs), False, None, None)
        after = opencl_device.statistics()
        moved.append(tuple(after[name] - before[name] for name in ("written_bytes", "read_bytes")))
        prepared.close()
    (written_few, read_few), (written_many, read_many) = moved
    assert written_few == written_many
    assert read_many - read_few == 20 * 2  # a bool of the loop and a bool of the branch


def test_constants_for_a_branch_are_written_once(opencl_device: Device) -> None:
    dims = (64, 64)
    inner = Graph()
    given = [inner.input(dims), inner.input(dims)]
    inner.operation(OperationCode.ADD, [*given, inner.integer(FuseCode.NONE)], inner.output(dims))
    graph = Outer()
    flag, value = graph.input((1,), BOOL), graph.input(dims)
    numbers = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    branch = graph.model_operand(0)
    graph.operation(OperationCode.IF, [flag, branch, branch, value, graph.constant(numbers)], graph.output(dims))
    prepared = prepare(opencl_device, replace(graph.model(), referenced=(inner.model().main,)))
    inputs, result = [np.ones(1, np.bool_), np.ones(dims, np.float32)], np.empty(dims, np.float32)
    written = []
    for _ in range(3):
        before = opencl_device.statistics()["written_bytes"]
        run(prepared, request(inputs, [result]))
        written.append(opencl_device.statistics()["written_bytes"] - before)
        np.testing.assert_array_equal(result, 1 + numbers)
    prepared.close()
    assert written[0] >= numbers.nbytes + written[1]
    assert written[1] == written[2]


def test_a_loop_without_end_times_out(opencl_device: Device) -> None:
    inputs = np.zeros(1, np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(HalError, match="the loop timed out") as caught:
        execute(opencl_device, loop(float("inf"), (2, 3)), inputs, 20_000_000)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


@pytest.mark.parametrize("is_cpu", [False, True])
@pytest.mark.parametrize(
    ("name", "timeout_ns"), [("MAXIMUM_LOOP_TIMEOUT_NS", 20_000_000_000), ("DEFAULT_LOOP_TIMEOUT_NS", None)]
)
def test_no_loop_may_run_longer_than_the_longest_timeout_or_that_of_who_states_none(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, is_cpu: bool, name: str, timeout_ns: int | None
) -> None:
    module = cpu_prepared_model if is_cpu else prepared_model
    monkeypatch.setattr(module, name, 20_000_000)
    inputs = np.zeros(1, np.float32), np.zeros((2, 3), np.float32)
    begin = time.monotonic()
    with pytest.raises(HalError, match="the loop timed out"):
        execute(CpuDevice() if is_cpu else opencl_device, loop(float("inf"), (2, 3)), inputs, timeout_ns)
    assert time.monotonic() - begin < 10


def test_a_loop_ends_at_the_deadline_too(opencl_device: Device) -> None:
    dims, body = (2, 3), Graph()
    zero, none = body.constant(np.zeros(1, np.float32)), body.integer(FuseCode.NONE)
    for one in ((1,), dims):
        body.operation(OperationCode.ADD, [body.input(one), zero, none], body.output(one))
    model = replace(loop(0, dims), referenced=(less_than(1, dims), body.model().main))
    prepared = prepare(opencl_device, model)
    inputs = np.zeros(1, np.float32), np.zeros(dims, np.float32)
    asked = request(inputs, [np.empty_like(one) for one in inputs])
    with pytest.raises(HalError, match="the deadline passed before operation 0 WHILE") as caught:
        prepared.execute_synchronously(asked, False, time.monotonic_ns() + 200_000_000, 5_000_000_000)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    prepared.close()


def test_memory_of_a_loop_is_given_back_at_a_pause(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    model, low = loop(3, (8, 8)), ExecutionPreference.LOW_POWER
    prepared = device.prepare_model(model, low, Priority.MEDIUM, None, None)
    inputs = np.zeros(1, np.float32), np.ones((8, 8), np.float32)
    outputs = [np.empty_like(one) for one in inputs]
    kept = []
    for _ in range(2):
        run(prepared, request(inputs, outputs))
        prepared.release_idle(time.monotonic() + 1)
        kept.append(memory_of(device).allocated_bytes)
        np.testing.assert_array_equal(outputs[1], np.full((8, 8), 8))
    assert max(kept) < outputs[1].nbytes  # constants alone
    prepared.close()


def test_a_refusal_names_the_operation_inside(opencl_device: Device) -> None:
    inner = Graph()
    source = inner.input((1,))
    inner.operation(9999, [source], inner.output((1,)))  # type: ignore[arg-type]
    graph = Outer()
    flag, value = graph.input((1,), BOOL), graph.input((1,))
    branch = graph.model_operand(0)
    graph.operation(OperationCode.IF, [flag, branch, branch, value], graph.output((1,)))
    model = replace(graph.model(), referenced=(inner.model().main,))
    (reason,) = opencl_device._refusals(model)
    assert reason.startswith("operation 0")
    assert "of model 0" in reason


def test_a_nest_of_shared_models_is_looked_at_once(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 40
    asked: list[int] = []
    refusal = Device._refusal

    def counted(self: Device, model: Model, subgraph: Subgraph, operation: Operation, index: int) -> str:
        asked.append(operation.type)
        return refusal(self, model, subgraph, operation, index)

    monkeypatch.setattr(Device, "_refusal", counted)
    model = nest_model(depth).hal
    (answer,) = opencl_device.explain_operations(model)
    assert answer.supported
    assert asked == [OperationCode.RELU]
    prepared = prepare(opencl_device, model)
    assert len(prepared._referenced) == depth
    values, result = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    for condition in (True, False):
        run(prepared, request([np.array([condition]), values], [result]))
        np.testing.assert_array_equal(result, np.maximum(values, 0))
    prepared.close()
