# SPDX-License-Identifier: Apache-2.0
"""Segments kept for what runs bring: which run gets which, and what is left of them when the model is closed."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.device.context import DeviceContext
from gpu_driver.execution.compiled_graph import MAX_SEGMENTS
from gpu_driver.execution.compiled_segment import CompiledSegment
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import DataLocation, Operand, OperandLifeTime, RequestArgument
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import fresh, memory_of, prepare, run

if TYPE_CHECKING:
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.driver import Device
    from gpu_driver.kernel import Packed
    from nn_runtime.hal.types import Model, Subgraph

BOOL, INT32 = OperandCode.TENSOR_BOOL8, OperandCode.TENSOR_INT32
LEFT_OUT = RequestArgument(has_no_value=True)


class Outer(Graph):
    """A graph with an IF."""

    def model_operand(self, index: int) -> int:
        location = DataLocation(offset=index)
        return self._add(Operand(OperandCode.MODEL, (), lifetime=OperandLifeTime.SUBGRAPH, location=location))


def repeating(times: int) -> Subgraph:
    """TILE of [rows, 3] along its rows."""
    graph = Graph()
    multiples = graph.constant(np.array([times, 1], np.int32))
    graph.operation(OperationCode.TILE, [graph.input((0, 3)), multiples], graph.output((0, 3)))
    return graph.model().main


def adding(rows: int) -> Model:
    """IF whose branches, the same, add a constant [rows, 16] to the input [?, 16]."""
    inner = Graph()
    given = [inner.input((0, 16)), inner.input((0, 16))]
    inner.operation(OperationCode.ADD, [*given, inner.integer(FuseCode.NONE)], inner.output((0, 16)))
    graph = Outer()
    flag, value, branch = graph.input((1,), BOOL), graph.input((0, 16)), graph.model_operand(0)
    ones = graph.constant(np.ones((rows, 16), np.float32))
    graph.operation(OperationCode.IF, [flag, branch, branch, value, ones], graph.output((0, 16)))
    return replace(graph.model(), referenced=(inner.model().main,))


def test_what_follows_a_branch_fits_what_that_made(opencl_device: Device) -> None:
    graph = Outer()
    flag, value, chosen = graph.input((1,), BOOL), graph.input((2, 3)), graph.temporary((0, 3))
    graph.operation(OperationCode.IF, [flag, graph.model_operand(0), graph.model_operand(1), value], chosen)
    graph.operation(OperationCode.ADD, [chosen, chosen, graph.integer(FuseCode.NONE)], graph.output((0, 3)))
    prepared = prepare(opencl_device, replace(graph.model(), referenced=(repeating(1), repeating(3))))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for is_true, times in ((True, 1), (False, 3), (True, 1)):
        result = np.full((2 * times, 3), np.nan, np.float32)
        (shape,) = run(prepared, request([np.array([is_true]), data], [result])).output_shapes
        assert shape.dimensions == result.shape
        assert np.array_equal(result, 2 * np.tile(data, (times, 1)))
    prepared.close()


def test_what_a_branch_made_is_known_behind_a_value_that_is_read_back(opencl_device: Device) -> None:
    """The value, [1, 6, -1], is the same whatever the branch made."""
    graph = Outer()
    flag, value, ones = graph.input((1,), BOOL), graph.input((2, 3)), graph.input((3,), INT32)
    chosen, wanted = graph.temporary((0, 3)), graph.temporary((3,), INT32)
    graph.operation(OperationCode.IF, [flag, graph.model_operand(0), graph.model_operand(1), value], chosen)
    less = graph.constant(np.array([0, 5, -2], np.int32))
    graph.operation(OperationCode.ADD, [ones, less, graph.integer(FuseCode.NONE)], wanted)
    graph.operation(OperationCode.RESHAPE, [chosen, wanted], graph.output((0, 0, 0)))
    prepared = prepare(opencl_device, replace(graph.model(), referenced=(repeating(1), repeating(3))))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for is_true, times in ((True, 1), (False, 3), (True, 1)):
        result = np.full((1, 6, times), np.nan, np.float32)
        given = [np.array([is_true]), data, np.ones(3, np.int32)]
        (shape,) = run(prepared, request(given, [result])).output_shapes
        assert shape.dimensions == result.shape
        assert np.array_equal(result.reshape(-1), np.tile(data, (times, 1)).reshape(-1))
    prepared.close()


def test_a_branch_makes_what_the_next_operation_is_lowered_by(opencl_device: Device) -> None:
    """Behind it nothing can be enqueued before that is read."""
    branches = []
    for dims in ((3, 2), (6, 1)):
        inner = Graph()
        given, none = inner.input((2,), INT32), inner.integer(FuseCode.NONE)
        inner.operation(
            OperationCode.MUL, [given, inner.constant(np.array(dims, np.int32)), none], inner.output((2,), INT32)
        )
        branches.append(inner.model().main)
    graph = Outer()
    flag, value, ones = graph.input((1,), BOOL), graph.input((2, 3)), graph.input((2,), INT32)
    wanted = graph.temporary((2,), INT32)
    graph.operation(OperationCode.IF, [flag, graph.model_operand(0), graph.model_operand(1), ones], wanted)
    graph.operation(OperationCode.RESHAPE, [value, wanted], graph.output((0, 0)))
    prepared = prepare(opencl_device, replace(graph.model(), referenced=tuple(branches)))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for is_true, dims in ((True, (3, 2)), (False, (6, 1))):
        result = np.full(dims, np.nan, np.float32)
        asked = request([np.array([is_true]), data, np.ones(2, np.int32)], [result])
        assert run(prepared, asked).output_shapes[0].dimensions == dims
        assert np.array_equal(result, data.reshape(dims))
    prepared.close()


def test_a_run_that_leaves_an_input_out_is_another_one(opencl_device: Device) -> None:
    """Signs of hashes, as LiteRT has them; with weights of -1 each is the other one."""
    graph = Graph()
    seeds = graph.constant(np.array([[0.123, 0.456], [-0.321, 1.234], [5.678, -4.321]], np.float32))
    values, weights, dense = graph.input((5,), INT32), graph.input((5,)), graph.integer(2)
    graph.operation(OperationCode.LSH_PROJECTION, [seeds, values, weights, dense], graph.output((6,), INT32))
    prepared = prepare(opencl_device, graph.model())
    data, minus = np.array([12345, 54321, 67890, 9876, -12345678], np.int32), np.full(5, -1, np.float32)
    unweighted = [0, 0, 0, 1, 0, 0]
    for is_left_out in (False, True, False):
        result = np.full(6, -1, np.int32)
        asked = request([data, minus], [result])
        if is_left_out:
            asked = replace(asked, inputs=(asked.inputs[0], LEFT_OUT))
        assert (prepared.create_reusable_execution(asked, False, None) is None) == is_left_out
        run(prepared, asked)
        assert result.tolist() == [bit ^ (not is_left_out) for bit in unweighted]
    prepared.close()


def test_a_closed_model_holds_no_constant_of_its_branches(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    prepared = prepare(device, adding(2))
    source, result = np.full((2, 16), 5, np.float32), np.empty((2, 16), np.float32)
    run(prepared, request([np.array([True]), source], [result]))
    assert np.array_equal(result, source + 1)
    prepared.close()
    assert memory_of(device).allocated_bytes == 0


@pytest.mark.parametrize("of_a_branch", [False, True])
def test_what_is_made_while_the_model_closes_is_not_kept(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, of_a_branch: bool
) -> None:
    """The run goes on to its end; the model, which its owner still has, holds nothing of it."""
    device = fresh(opencl_device)
    graph = Graph()
    ones, none = graph.constant(np.ones(16, np.float32)), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [graph.input((0, 16)), ones, none], graph.output((0, 16)))
    prepared = prepare(device, adding(2) if of_a_branch else graph.model())
    constant = DeviceContext.constant

    def closing(context: DeviceContext, packed: Packed) -> DeviceBuffer:
        prepared.close()
        return constant(context, packed)

    monkeypatch.setattr(DeviceContext, "constant", closing)
    source, result = np.full((2, 16), 5, np.float32), np.empty((2, 16), np.float32)
    run(prepared, request([*([np.array([True])] if of_a_branch else []), source], [result]))
    assert np.array_equal(result, source + 1)
    assert memory_of(device).allocated_bytes == 0


def test_segments_of_a_branch_that_left_the_cache_leave_nothing(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, adding(1))
    (branch,) = prepared._referenced.values()
    segments = weakref.WeakSet[CompiledSegment]()
    for rows in range(1, MAX_SEGMENTS + 9):
        source, result = np.full((rows, 16), rows, np.float32), np.empty((rows, 16), np.float32)
        run(prepared, request([np.array([True]), source], [result]))
        assert (result == rows + 1).all()
        segments |= branch.segments
    gc.collect()
    assert len(segments) == MAX_SEGMENTS
    prepared.close()


def test_an_input_of_any_size_that_nothing_reads(opencl_device: Device) -> None:
    graph = Graph()
    source, none = graph.input((2, 3)), graph.integer(FuseCode.NONE)
    graph.input((0, 3))
    graph.operation(OperationCode.ADD, [source, source, none], graph.output((2, 3)))
    prepared = prepare(opencl_device, graph.model())
    for rows in (5, 1):
        data, result = np.full((2, 3), rows, np.float32), np.empty((2, 3), np.float32)
        asked = request([data, np.empty((rows, 3), np.float32)], [result])
        run(prepared, asked)
        assert (result == 2 * rows).all()
        execution = prepared.create_reusable_execution(asked, False, None)
        assert execution is not None
        result[...] = 0
        execution.execute_synchronously(None)
        assert (result == 2 * rows).all()
    prepared.close()
