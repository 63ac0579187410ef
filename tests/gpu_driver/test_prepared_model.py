# SPDX-License-Identifier: Apache-2.0
"""Execution on an OpenCL device: shapes, memory domains, executions at once, memory given back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.execution.graph_run import Commands
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    BufferDesc,
    BufferRole,
    ErrorStatus,
    HalError,
)
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import doubling, filled, on_buffers, prepare, run, transposing

if TYPE_CHECKING:
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel


def test_times_on_the_device_are_within_times_in_the_driver(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(4))
    source, result = np.ones((4, 16), np.float32), np.empty((4, 16), np.float32)
    start = time.perf_counter_ns()
    timing = run(prepared, request([source], [result]), measure=True).timing
    wall = time.perf_counter_ns() - start
    assert 0 < timing.time_on_device_ns <= timing.time_in_driver_ns <= wall
    unmeasured = run(prepared, request([source], [result])).timing
    assert (unmeasured.time_on_device_ns, unmeasured.time_in_driver_ns) == (UNKNOWN_DURATION, UNKNOWN_DURATION)


def test_profile_has_a_row_per_launch_and_transfer(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(4))
    source, result = np.ones((4, 16), np.float32), np.empty((4, 16), np.float32)
    _, profile = prepared.execute_profiled(request([source], [result]), None, None)
    assert [row.operations for row in profile.rows] == [(), (0,), (1,), ()]
    assert [row.kernel for row in (profile.rows[0], profile.rows[-1])] == ["write", "read"]
    assert all(0 <= row.start_ns <= row.end_ns for row in profile.rows)


def test_shapes_known_only_at_run_time(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, transposing())
    for rows, columns in ((2, 3), (5, 1), (2, 3)):
        source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        result = np.empty((columns, rows), np.float32)
        shapes = run(prepared, request([source], [result])).output_shapes
        assert shapes[0].dimensions == (columns, rows)
        assert np.array_equal(result, source.T)


def test_a_buffer_too_small_tells_the_shape(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, transposing())
    with pytest.raises(HalError) as caught:
        run(prepared, request([np.zeros((2, 3), np.float32)], [np.empty(5, np.float32)]))
    assert caught.value.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert caught.value.output_shapes[0].dimensions == (3, 2)
    assert not caught.value.output_shapes[0].is_sufficient


def test_every_request_is_checked(opencl_device: Device) -> None:
    """Not only the first, and again one that had been right before others came."""
    prepared = prepare(opencl_device, doubling(4))
    source, result = np.ones((4, 16), np.float32), np.empty((4, 16), np.float32)
    right, wrong = request([source], [result]), request([source], [result[:3]])
    for _ in range(2):
        run(prepared, right)
        assert (result == 2).all()
        result[:] = 0
        with pytest.raises(HalError, match="output 0") as caught:
            run(prepared, wrong)
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        assert not result.any()


def test_a_value_computed_on_the_device_shapes_a_later_operation(opencl_device: Device) -> None:
    graph = Graph()
    source, numbers = graph.input((2, 3)), graph.input((2,), OperandCode.TENSOR_INT32)
    shape, output = graph.temporary((2,), OperandCode.TENSOR_INT32), graph.output((0, 0))
    none = graph.constant(np.zeros(2, np.int32))
    graph.operation(OperationCode.ADD, [numbers, none, graph.integer(FuseCode.NONE)], shape)
    graph.operation(OperationCode.RESHAPE, [source, shape], output)
    prepared = prepare(opencl_device, graph.model())
    data, result = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty(6, np.float32)
    for wanted in ((3, 2), (6, 1), (1, 6)):
        shapes = run(prepared, request([data, np.array(wanted, np.int32)], [result])).output_shapes
        assert shapes[0].dimensions == wanted
        assert np.array_equal(result, data.reshape(-1))


def test_a_sum_that_a_convolution_does_before_a_value_is_read_back(opencl_device: Device) -> None:
    """The ADD behind the RESHAPE, for which the ADD of the dimensions has to be waited for, is done by then."""
    image = (1, 4, 4, 1)
    graph = Graph()
    source, other, sizes = graph.input(image), graph.input(image), graph.input((2,), OperandCode.TENSOR_INT32)
    product, shape = graph.temporary(image), graph.temporary((2,), OperandCode.TENSOR_INT32)
    none, one, valid = graph.integer(FuseCode.NONE), graph.integer(1), graph.integer(2)
    weights = [graph.constant(np.full((1, 1, 1, 1), 2, np.float32)), graph.constant(np.zeros(1, np.float32))]
    graph.operation(OperationCode.CONV_2D, [source, *weights, valid, one, one, none], product)
    graph.operation(OperationCode.ADD, [sizes, graph.constant(np.zeros(2, np.int32)), none], shape)
    graph.operation(OperationCode.RESHAPE, [other, shape], graph.output((0, 0)))
    graph.operation(OperationCode.ADD, [product, other, none], graph.output(image))
    prepared = prepare(opencl_device, graph.model())
    given = [np.arange(16, dtype=np.float32).reshape(image), np.full(image, 5, np.float32)]
    for rows, columns in ((2, 8), (4, 4)):
        reshaped, total = np.zeros((rows, columns), np.float32), np.zeros(image, np.float32)
        run(prepared, request([*given, np.array([rows, columns], np.int32)], [reshaped, total]))
        assert (reshaped == 5).all()
        assert np.array_equal(total, 2 * given[0] + 5)


def test_chained_executions_stay_on_the_device(opencl_device: Device) -> None:
    """Doubling twice through memory domains: the profile shows no transfer at all."""
    prepared = prepare(opencl_device, doubling(4))
    role = [BufferRole(0, 0, 1.0)]
    first, first_token = opencl_device.allocate(BufferDesc(), [prepared], role, role)
    second, second_token = opencl_device.allocate(BufferDesc(), [prepared], role, role)
    data = np.arange(64, dtype=np.float32)
    first.copy_from(filled(data), ())
    _, profile = prepared.execute_profiled(on_buffers(first_token, second_token), None, None)
    run(prepared, on_buffers(second_token, first_token))
    assert {row.kernel for row in profile.rows}.isdisjoint({"write", "read"})
    back = SharedMemory.create(256)
    first.copy_to(back)
    assert np.array_equal(back.array().view(np.float32), 4 * data)
    # The same prepared model still works on host memory.
    result = np.empty((4, 16), np.float32)
    run(prepared, request([data.reshape(4, 16)], [result]))
    assert np.array_equal(result.reshape(-1), 2 * data)
    first.close()
    second.close()
    with pytest.raises(HalError):
        run(prepared, on_buffers(first_token, second_token))


def test_a_buffer_that_holds_nothing_is_refused(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(4))
    role = [BufferRole(0, 0, 1.0)]
    _first, first_token = opencl_device.allocate(BufferDesc(), [prepared], role, [])
    _second, second_token = opencl_device.allocate(BufferDesc(), [prepared], [], role)
    with pytest.raises(HalError) as caught:
        run(prepared, on_buffers(first_token, second_token))
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


def test_a_passed_deadline_is_missed(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(4))
    asked = request([np.ones((4, 16), np.float32)], [np.empty((4, 16), np.float32)])
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(asked, False, time.monotonic_ns() - 1, None)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_a_deadline_that_passes_while_a_value_is_read_back(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is enqueued."""
    graph = Graph()
    source, numbers = graph.input((2, 3)), graph.input((2,), OperandCode.TENSOR_INT32)
    shape, none = graph.temporary((2,), OperandCode.TENSOR_INT32), graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [numbers, graph.constant(np.zeros(2, np.int32)), none], shape)
    graph.operation(OperationCode.RESHAPE, [source, shape], graph.output((0, 0)))
    prepared = prepare(opencl_device, graph.model())
    result = np.full(6, np.nan, np.float32)
    asked = request([np.ones((2, 3), np.float32), np.array([3, 2], np.int32)], [result])
    run(prepared, asked)
    result[:] = np.nan
    deadline_ns, wait = time.monotonic_ns() + 2 * 10**9, Commands.wait

    def wait_long(commands: Commands) -> None:
        wait(commands)
        time.sleep(max(0, deadline_ns - time.monotonic_ns()) / 1e9)

    monkeypatch.setattr(Commands, "wait", wait_long)
    with pytest.raises(HalError, match="the deadline passed before operation 1 RESHAPE") as caught:
        prepared.execute_synchronously(asked, False, deadline_ns, None)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    assert np.isnan(result).all()


def constants_of(prepared: PreparedModel) -> list[DeviceBuffer]:
    static = prepared._graph.static
    assert static is not None
    return list(static._uploaded.values())


def test_programs_are_shared_and_constants_kept_once(opencl_device: Device) -> None:
    first = prepare(opencl_device, doubling(8))
    before = opencl_device.context().programs.stats
    second = prepare(opencl_device, doubling(8))
    after = opencl_device.context().programs.stats
    assert (after.builds, after.loads) == (before.builds, before.loads)
    shared = {buffer for one in (first, second) for buffer in constants_of(one)}
    assert len(shared) == len(constants_of(first)) > 0
    first.close()
    second.close()
