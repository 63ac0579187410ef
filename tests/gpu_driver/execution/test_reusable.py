# SPDX-License-Identifier: Apache-2.0
"""Executions that are bound once: what they read and write, in place and by copies, and what is not bound."""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device.context import MAX_EXECUTIONS
from gpu_driver.device.device_memory import DeviceBuffer
from gpu_driver.execution.reusable import ReusableExecution
from gpu_driver.execution.segment_context import SegmentContext
from nn_runtime.codes import OperationCode
from nn_runtime.hal.interfaces import CreatesReusableExecutions, ExecutionProfile, TakesOtherMemory
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    BufferDesc,
    BufferRole,
    DataLocation,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Priority,
    Request,
    RequestArgument,
)
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import (
    at_once,
    doubling,
    filled,
    fresh,
    memory_of,
    on_buffers,
    prepare,
    run_doubling,
    transposing,
    until,
)

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.operand import Array

ROWS = 10
PAGE_BYTES = 4096


def at(offset: int, rows: int = ROWS) -> Array:
    """Return floats [rows, 16] so many bytes behind a page's beginning."""
    room = np.zeros(rows * 64 + 2 * PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % PAGE_BYTES + offset
    return room[start : start + rows * 64].view(np.float32).reshape(rows, 16)


def bound(prepared: PreparedModel, asked: Request, *, measure: bool = False) -> ReusableExecution:
    execution = prepared.create_reusable_execution(asked, measure, None)
    assert execution is not None
    return execution


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, 16)).astype(np.float32)


@pytest.mark.parametrize(("source_at", "result_at"), [(0, 0), (0, 4), (4, 0), (4, 4), (64, 128)])
def test_every_execution_reads_and_writes_anew(opencl_device: Device, source_at: int, result_at: int) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    assert isinstance(prepared, CreatesReusableExecutions)
    source, result = at(source_at), at(result_at)
    execution = bound(prepared, request([source], [result]))
    for seed in range(3):
        source[:] = draw(seed)
        result[:] = np.nan
        execution.execute_synchronously(None)
        assert np.array_equal(result, 2 * draw(seed))


@pytest.mark.parametrize("offset", [0, 16, 48, 64])
@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("bound_at", [0, 4])
def test_other_memory_for_an_execution(opencl_device: Device, offset: int, measure: bool, bound_at: int) -> None:
    """It is used in place where all that is bound is, or copied like all, and only for the execution that it is for."""
    source, result = at(bound_at), at(bound_at)
    execution = bound(prepare(opencl_device, doubling(ROWS)), request([source], [result]), measure=measure)
    assert isinstance(execution, TakesOtherMemory)
    for turn, (other_source, other_result) in enumerate([(True, True), (True, False), (False, True), (False, False)]):
        source[:] = draw(turn + 10)
        result[:] = np.nan
        inputs = {0: at(offset)} if other_source else {}
        outputs = {0: at(offset)} if other_result else {}
        for array in inputs.values():
            array[:] = draw(turn + 1)
        timing = execution.with_memory(inputs, outputs).execute_synchronously(None).timing
        assert (0 < timing.time_on_device_ns <= timing.time_in_driver_ns < UNKNOWN_DURATION) is measure
        assert np.array_equal(outputs.get(0, result), 2 * inputs.get(0, source))
        assert np.isnan(result).all() == other_result
        execution.execute_synchronously(None)
        assert np.array_equal(result, 2 * source)


def test_a_profile_with_other_memory(opencl_device: Device) -> None:
    execution = bound(prepare(opencl_device, doubling(ROWS)), request([at(0)], [at(0)]))
    if isinstance(execution, TakesOtherMemory):
        source, result = at(16), at(16)
        source[:] = draw(0)
        _, profile = execution.with_memory({0: source}, {0: result}).execute_profiled(None)
        assert np.array_equal(result, 2 * draw(0))
        assert {operation for row in profile.rows for operation in row.operations} == {0, 1}


def test_other_memory_is_let_go(opencl_device: Device) -> None:
    """Memory that many executions were done with stays nobody's, and the device counts none of it as its own."""
    device = fresh(opencl_device)
    execution = bound(prepare(device, doubling(ROWS)), request([at(0)], [at(0)]))
    if not isinstance(execution, TakesOtherMemory):
        return
    execution.execute_synchronously(None)
    counted = memory_of(device).allocated_bytes
    for seed in range(200):
        source, result = at(16), at(16)
        source[:] = draw(seed)
        execution.with_memory({0: source}, {0: result}).execute_synchronously(None)
        assert np.array_equal(result, 2 * draw(seed))
        gone = weakref.ref(source), weakref.ref(result)
        del source, result
        assert [reference() for reference in gone] == [None, None]
    assert memory_of(device).allocated_bytes == counted


@pytest.mark.parametrize(("source_at", "result_at"), [(0, 4), (4, 0)])
def test_what_is_copied_in_part_takes_no_other_memory(opencl_device: Device, source_at: int, result_at: int) -> None:
    execution = bound(prepare(opencl_device, doubling(ROWS)), request([at(source_at)], [at(result_at)]))
    assert isinstance(execution, TakesOtherMemory) is not opencl_device.profile.uses_host_memory


def test_shared_memory_is_read_and_written_anew(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    pools = filled(draw(0)), filled(np.zeros((ROWS, 16), np.float32))
    arguments = [RequestArgument(location=DataLocation(i, 0, ROWS * 64)) for i in range(2)]
    execution = bound(prepared, Request((arguments[0],), (arguments[1],), pools))
    for seed in range(3):
        pools[0].array()[:] = draw(seed).reshape(-1).view(np.uint8)
        execution.execute_synchronously(None)
        assert np.array_equal(pools[1].array().view(np.float32), 2 * draw(seed).reshape(-1))


def test_memory_that_is_read_and_written(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    both = at(0)
    execution = bound(prepared, request([both], [both]))
    both[:] = draw(0)
    for factor in (2, 4, 8):
        execution.execute_synchronously(None)
        assert np.array_equal(both, factor * draw(0))


@pytest.mark.parametrize("shift", [0, PAGE_BYTES, -PAGE_BYTES])
def test_a_result_that_takes_the_place_of_what_is_still_read(opencl_device: Device, shift: int) -> None:
    """All of it, or all but a page."""
    side = 256
    graph = Graph()
    source, turned = graph.input((side, side)), graph.output((side, side))
    graph.operation(OperationCode.TRANSPOSE, [source, graph.constant(np.array([1, 0], np.int32))], turned)
    room = at(0, (side * side * 4 + PAGE_BYTES) // 64).reshape(-1)
    first, second = (room[start // 4 :][: side * side].reshape(side, side) for start in (0, abs(shift)))
    given, result = (second, first) if shift < 0 else (first, second)
    data = np.arange(side * side, dtype=np.float32).reshape(side, side)
    given[:] = data
    bound(prepare(opencl_device, graph.model()), request([given], [result])).execute_synchronously(None)
    assert np.array_equal(result, data.T)


def test_input_that_may_not_be_written(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    source, result = at(0), at(0)
    source[:] = draw(0)
    source.flags.writeable = False
    bound(prepared, request([source], [result])).execute_synchronously(None)
    assert np.array_equal(result, 2 * draw(0))


def test_a_burst_of_the_same_and_of_other_requests(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    burst = prepared.configure_execution_burst()
    places = [(at(0), at(0)), (at(4), at(4))]
    requests = [request([source], [result]) for source, result in places]
    for turn, which in enumerate((0, 0, 0, 1, 0, 1, 1, 1, 1, 0)):
        source, result = places[which]
        source[:] = draw(turn)
        timing = burst.execute(requests[which], turn % 4 == 3, None, None).timing
        assert (timing.time_in_driver_ns < 10**18) is (turn % 4 == 3)
        assert np.array_equal(result, 2 * draw(turn))
        if turn == 6:
            burst.free_memory(filled(source))
    burst.close()


@pytest.mark.parametrize("measure", [False, True])
def test_a_burst_measures_what_is_asked_for_anew(opencl_device: Device, measure: bool) -> None:
    """The request is bound from its second time on, for the one way to ask; then it is asked the other way."""
    burst = prepare(opencl_device, doubling(ROWS)).configure_execution_burst()
    asked = request([at(0)], [at(0)])
    for wanted in (measure, measure, measure, not measure):
        timing = burst.execute(asked, wanted, None, None).timing
        assert (timing.time_in_driver_ns != UNKNOWN_DURATION) is wanted
    burst.close()


def test_several_at_once(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))

    def work(seed: int) -> None:
        source, result = at(seed % 2 * 4), at(seed // 2 * 4)
        execution = bound(prepared, request([source], [result]))
        for turn in range(50):
            source[:] = draw(100 * seed + turn)
            execution.execute_synchronously(None)
            assert np.array_equal(result, 2 * source)

    assert at_once([lambda seed=seed: work(seed) for seed in range(6)]) == []  # type: ignore[misc]


def test_results_outlive_the_memory_of_the_device(opencl_device: Device) -> None:
    """An idle context gives its memory back; bound executions take new."""
    device = fresh(opencl_device)
    prepared = prepare(device, doubling(ROWS))
    source, result = at(4), at(4)
    execution = bound(prepared, request([source], [result]))
    for seed in range(3):
        source[:] = draw(seed)
        execution.execute_synchronously(None)
        assert np.array_equal(result, 2 * draw(seed))
        run_doubling(prepared, ROWS, seed)
        prepared.release_idle(time.monotonic() + 1)


@pytest.mark.parametrize("preference", ExecutionPreference)
def test_every_preference(opencl_device: Device, preference: ExecutionPreference) -> None:
    device = fresh(opencl_device)
    prepared = device.prepare_model(doubling(ROWS), preference, Priority.MEDIUM, None, None)
    source, result = at(0), at(0)
    execution = bound(prepared, request([source], [result]))
    for seed in range(3):
        source[:] = draw(seed)
        execution.execute_synchronously(None)
        assert np.array_equal(result, 2 * draw(seed))


def test_measured(opencl_device: Device) -> None:
    source, result = at(0), at(0)
    execution = bound(prepare(opencl_device, doubling(ROWS)), request([source], [result]), measure=True)
    start_ns = time.perf_counter_ns()
    timing = execution.execute_synchronously(None).timing
    assert 0 < timing.time_on_device_ns <= timing.time_in_driver_ns <= time.perf_counter_ns() - start_ns


def test_profile_has_a_row_for_every_operation(opencl_device: Device) -> None:
    source, result = at(0), at(0)
    source[:] = draw(0)
    execution = bound(prepare(opencl_device, doubling(ROWS)), request([source], [result]))
    _, profile = execution.execute_profiled(None)
    execution.execute_profiled(None)
    assert np.array_equal(result, 2 * draw(0))
    assert {operation for row in profile.rows for operation in row.operations} == {0, 1}
    assert all(0 <= row.start_ns <= row.end_ns for row in profile.rows)
    assert pickle.loads(pickle.dumps(profile)) == ExecutionProfile(profile.rows)


def test_deadline_and_closed_model(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    execution = bound(prepared, request([at(0)], [at(0)]))
    with pytest.raises(HalError) as caught:
        execution.execute_synchronously(time.monotonic_ns() - 1)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    prepared.close()
    with pytest.raises(HalError, match="closed"):
        execution.execute_synchronously(None)


def test_a_busy_device_is_waited_for_until_the_deadline(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    execution = bound(prepare(device, doubling(ROWS)), request([at(0)], [at(0)]))
    with ExitStack() as busy:
        for _ in range(MAX_EXECUTIONS):
            busy.enter_context(device.context().executions.slot(Priority.MEDIUM))
        release = threading.Timer(5, busy.close)  # it comes too late
        release.start()
        with pytest.raises(HalError) as caught:
            execution.execute_synchronously(time.monotonic_ns() + 20_000_000)
        release.cancel()
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


@pytest.mark.parametrize("has_deadline", [False, True])
def test_who_waits_is_served_by_priority(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, has_deadline: bool
) -> None:
    device = fresh(opencl_device)
    executions = device.context().executions
    arrivals = [Priority.MEDIUM, Priority.LOW, Priority.HIGH]
    bounds = [bound(prepare(device, doubling(ROWS), one), request([at(0)], [at(0)])) for one in arrivals]
    served: list[Priority] = []
    whole = ReusableExecution._run

    def noted(execution: ReusableExecution, *arguments: Any) -> cl.Event | None:
        served.append(execution._prepared.priority)
        return whole(execution, *arguments)

    monkeypatch.setattr(ReusableExecution, "_run", noted)
    end = time.monotonic_ns() + 600 * 10**9 if has_deadline else None
    threads = [threading.Thread(target=one.execute_synchronously, args=(end,)) for one in bounds]
    with ExitStack() as others:
        for _ in range(MAX_EXECUTIONS - 1):
            others.enter_context(executions.slot(Priority.MEDIUM))
        with executions.slot(Priority.MEDIUM):
            for place, thread in enumerate(threads):
                thread.start()
                until(lambda place=place: executions.waiting == place + 1)  # type: ignore[misc]
        for thread in threads:  # one after the other, in the slot that is free now
            thread.join(60)
    assert served == sorted(arrivals, reverse=True)


def test_what_is_not_bound(opencl_device: Device) -> None:
    """Shapes that come with the request, and requests that are wrong: their errors come when they are executed."""
    model = prepare(opencl_device, transposing())
    sizes = RequestArgument(location=DataLocation(pointer=at(0), length=ROWS * 64), dimensions=(ROWS, 16))
    assert model.create_reusable_execution(Request((sizes,), (sizes,), ()), False, None) is None
    prepared = prepare(opencl_device, doubling(ROWS))
    assert prepared.create_reusable_execution(request([at(0)], [at(0, ROWS - 1)]), False, None) is None
    assert prepared.create_reusable_execution(Request((), (), ()), False, None) is None
    left_out = replace(request([at(0)], []), outputs=(RequestArgument(has_no_value=True),))
    assert prepared.create_reusable_execution(left_out, False, None) is None


def test_memory_domains_are_not_bound(opencl_device: Device) -> None:
    prepared = prepare(opencl_device, doubling(ROWS))
    role = [BufferRole(0, 0, 1.0)]
    (first, first_token), (second, second_token) = (
        opencl_device.allocate(BufferDesc(), [prepared], role, role) for _ in range(2)
    )
    assert prepared.create_reusable_execution(on_buffers(first_token, second_token), False, None) is None
    first.close()
    second.close()


def test_an_output_without_elements_is_not_bound(opencl_device: Device) -> None:
    graph = Graph()
    source, none, begin = graph.input((2, 3)), graph.integer(0), graph.constant(np.zeros(2, np.int32))
    graph.operation(OperationCode.ADD, [source, source, none], graph.output((2, 3)))
    sizes = graph.constant(np.array([0, 3], np.int32))
    graph.operation(OperationCode.SLICE, [source, begin, sizes], graph.output((0, 3)))
    prepared = prepare(opencl_device, graph.model())
    data, result = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    asked = request([data], [result, np.empty(4, np.float32)])
    assert prepared.create_reusable_execution(asked, False, None) is None
    shapes = prepared.execute_synchronously(asked, False, None, None).output_shapes
    assert [shape.dimensions for shape in shapes] == [(2, 3), (0, 3)]
    assert (result == 2).all()


def test_a_burst_computes_the_request_that_comes(opencl_device: Device) -> None:
    """Whatever came before it, and however often."""
    burst = prepare(opencl_device, doubling(ROWS)).configure_execution_burst()
    pairs = [(draw(seed), np.empty((ROWS, 16), np.float32)) for seed in range(2)]
    requests = [request([source], [result]) for source, result in pairs]
    for turn, number in enumerate((0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0)):
        source, result = pairs[number]
        result[:] = np.nan
        timing = burst.execute(requests[number], turn % 4 == 3, None, None).timing
        assert np.array_equal(result, 2 * source)
        assert (timing.time_in_driver_ns < UNKNOWN_DURATION) == (turn % 4 == 3)
    burst.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_memory_that_a_burst_forgets_is_nobodys(opencl_device: Device, is_closed: bool) -> None:
    burst = prepare(opencl_device, doubling(ROWS)).configure_execution_burst()
    source, result = at(0), at(0)
    asked = request([source], [result])
    for _ in range(3):
        burst.execute(asked, False, None, None)
    if is_closed:
        burst.close()
    else:
        burst.free_memory(SharedMemory.create(4))
    gone = weakref.ref(source.base), weakref.ref(result.base)
    del source, result, asked
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.parametrize("offset", [0, 4])
def test_nothing_writes_to_memory_any_more_after_an_interruption(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    device = fresh(opencl_device)
    execution = bound(prepare(device, doubling(ROWS)), request([at(offset)], [at(offset)]))
    execution.execute_synchronously(None)
    begins, events = cl.UserEvent(device.context().context), list[cl.Event]()
    whole = SegmentContext.enqueue

    class Interrupted:
        def wait(self) -> None:
            raise KeyboardInterrupt

    def noted(segment: SegmentContext, queue: cl.CommandQueue, *arguments: Any, **options: Any) -> Interrupted:
        cl.enqueue_barrier(queue, wait_for=[begins])
        event = whole(segment, queue, *arguments, **options)
        assert event is not None
        events.append(event)
        return Interrupted()

    monkeypatch.setattr(SegmentContext, "enqueue", noted)
    monkeypatch.setattr(DeviceBuffer, "read", lambda *arguments: Interrupted())
    complete = cl.command_execution_status.COMPLETE
    threading.Timer(0.05, begins.set_status, (complete,)).start()
    with pytest.raises(KeyboardInterrupt):
        execution.execute_synchronously(None)
    assert [event.command_execution_status for event in events] == [complete]
