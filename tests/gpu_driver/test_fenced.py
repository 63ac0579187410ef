# SPDX-License-Identifier: Apache-2.0
"""Fenced executions of the driver: the call returns at once, the fence tells the end, the callback times or error."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.device.context import MAX_EXECUTIONS
from nn_runtime.hal.fences import Fence, FenceStatus, close, wait
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    HalError,
    Priority,
    Request,
    RequestArgument,
    Timing,
)
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import (
    MISSED,
    doubling,
    ended,
    filled,
    fresh,
    on_buffers,
    prepare,
    start_python,
    transposing,
)
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.hal.interfaces import IFencedExecutionCallback
    from nn_runtime.operand import Array

ROLE = [BufferRole(0, 0, 1.0)]
PATIENCE_S = 60


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with a context of its own."""
    return fresh(opencl_device)


@pytest.fixture
def gate() -> Iterator[Fence]:
    """A fence to wait for."""
    fence = Fence()
    yield fence
    fence.close()


def start(
    prepared: PreparedModel,
    asked: Request,
    *gates: Fence,
    deadline_ns: int | None = None,
    duration_ns: int | None = None,
) -> tuple[int, IFencedExecutionCallback]:
    waits = [gate.fd for gate in gates]
    return prepared.execute_fenced(asked, waits, True, deadline_ns, None, duration_ns)


def arrays() -> tuple[Array, Array]:
    return np.arange(64, dtype=np.float32).reshape(4, 16), np.full((4, 16), np.nan, np.float32)


def end_of(fence: int) -> FenceStatus:
    status = wait(fence, PATIENCE_S)
    close(fence)
    return status


def failure_of(callback: IFencedExecutionCallback) -> ErrorStatus:
    with pytest.raises(HalError) as caught:
        callback.get_execution_info()
    return caught.value.status


def test_the_call_returns_before_its_fences_and_the_result_comes_after(device: Device, gate: Fence) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    fence, callback = start(prepared, request([source], [result]), gate)
    assert wait(fence, 0.02) == FenceStatus.PENDING
    assert failure_of(callback) == ErrorStatus.GENERAL_FAILURE
    assert np.isnan(result).all()
    gate.signal()
    assert end_of(fence) == FenceStatus.SIGNALLED
    assert np.array_equal(result, 2 * source)


def test_times_since_launch_hold_the_wait_for_the_fences(device: Device, gate: Fence) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    before_ns = time.monotonic_ns()
    fence, callback = start(prepared, request([source], [result]), gate)
    time.sleep(0.05)
    gate.signal()
    assert end_of(fence) == FenceStatus.SIGNALLED
    whole_ns = time.monotonic_ns() - before_ns
    launched, fenced = callback.get_execution_info()
    assert launched.time_on_device_ns == fenced.time_on_device_ns
    assert 0 < fenced.time_on_device_ns <= fenced.time_in_driver_ns
    assert fenced.time_in_driver_ns + 50_000_000 <= launched.time_in_driver_ns <= whole_ns


def test_times_that_nobody_asked_for_stay_unknown(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    fence, callback = prepared.execute_fenced(request([source], [result]), [], False, None, None, None)
    assert end_of(fence) == FenceStatus.SIGNALLED
    assert callback.get_execution_info() == (Timing(UNKNOWN_DURATION, UNKNOWN_DURATION),) * 2


def test_the_caller_waits_for_nobody_in_the_line(device: Device) -> None:
    """All slots are taken: the call still returns, and its execution waits."""
    prepared = prepare(device, doubling(4))
    executions = device.context().executions
    slots = [executions.slot(Priority.HIGH) for _ in range(MAX_EXECUTIONS)]
    for slot in slots:
        slot.__enter__()
    source, result = arrays()
    fence, _ = start(prepared, request([source], [result]))
    assert wait(fence, 0.02) == FenceStatus.PENDING
    for slot in slots:
        slot.__exit__(None, None, None)
    assert end_of(fence) == FenceStatus.SIGNALLED
    assert np.array_equal(result, 2 * source)


def test_a_chain_on_device_memory(device: Device, gate: Fence) -> None:
    """Each execution waits for the one before, and reads what that one wrote."""
    prepared = prepare(device, doubling(4))
    buffers = [device.allocate(BufferDesc(), [prepared], ROLE, ROLE) for _ in range(4)]
    data = np.arange(64, dtype=np.float32)
    buffers[0][0].copy_from(filled(data), ())
    fences = [gate.fd]
    for (_, token), (_, next_token) in itertools.pairwise(buffers):
        fence, _ = prepared.execute_fenced(on_buffers(token, next_token), [fences[-1]], False, None, None, None)
        fences.append(fence)
    with pytest.raises(HalError):
        buffers[3][0].copy_to(SharedMemory.create(256))
    gate.signal()
    assert wait(fences[-1], PATIENCE_S) == FenceStatus.SIGNALLED
    back = SharedMemory.create(256)
    buffers[3][0].copy_to(back)
    assert np.array_equal(back.array().view(np.float32), 8 * data)
    for fence in fences[1:]:
        close(fence)
    for buffer, _ in buffers:
        buffer.close()


@pytest.mark.parametrize("wanted", [(3, 2), (2, 3)])
def test_device_memory_takes_what_the_request_says_alone(device: Device, wanted: tuple[int, ...]) -> None:
    """Memory of any shape, and a result of another one than the request's: nobody asks for shapes after a fence."""
    prepared = prepare(device, transposing())
    buffer, token = device.allocate(BufferDesc(), [prepared], [], ROLE)
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    asked = request([source], [])
    result = RequestArgument(location=DataLocation(pool_index=len(asked.pools)), dimensions=wanted)
    asked = Request(asked.inputs, (result,), (*asked.pools, BufferToken(token)))
    fence, callback = start(prepared, asked)
    if wanted == (3, 2):
        assert end_of(fence) == FenceStatus.SIGNALLED
        assert buffer.dimensions == wanted
    else:
        assert end_of(fence) == FenceStatus.FAILED
        assert failure_of(callback) == ErrorStatus.GENERAL_FAILURE
        with pytest.raises(HalError):
            buffer.copy_to(SharedMemory.create(24))
    buffer.close()


def test_a_failed_fence_fails_the_execution(device: Device, gate: Fence) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    fence, callback = start(prepared, request([source], [result]), gate)
    gate.signal(False)
    assert end_of(fence) == FenceStatus.FAILED
    assert failure_of(callback) == ErrorStatus.GENERAL_FAILURE
    assert np.isnan(result).all()


def test_errors_after_the_return_are_the_callbacks(device: Device, gate: Fence) -> None:
    """An input buffer that still holds nothing when the fences signal; its output holds nothing either."""
    prepared = prepare(device, doubling(4))
    (_first, first_token), (second, second_token) = (
        device.allocate(BufferDesc(), [prepared], ROLE, ROLE) for _ in range(2)
    )
    fence, callback = start(prepared, on_buffers(first_token, second_token), gate)
    gate.signal()
    assert end_of(fence) == FenceStatus.FAILED
    assert failure_of(callback) == ErrorStatus.GENERAL_FAILURE
    with pytest.raises(HalError):
        second.copy_to(SharedMemory.create(256))


@pytest.mark.parametrize("how", ["deadline", "duration"])
def test_deadlines_pass_while_it_waits(device: Device, gate: Fence, how: str) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    if how == "deadline":
        deadline_ns = time.monotonic_ns() + 20_000_000
        fence, callback = start(prepared, request([source], [result]), gate, deadline_ns=deadline_ns)
    else:
        fence, callback = start(prepared, request([source], [result]), duration_ns=1)
    assert end_of(fence) == FenceStatus.FAILED
    assert failure_of(callback) in MISSED


def test_what_can_be_known_at_once_is_raised_at_once(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    source, result = arrays()
    asked = request([source], [result])
    cases = [
        (lambda: prepared.execute_fenced(asked, [-1], False, None, None, None), ErrorStatus.INVALID_ARGUMENT),
        (lambda: start(prepared, Request((), (), ())), ErrorStatus.INVALID_ARGUMENT),
        (lambda: start(prepare(device, transposing()), asked), ErrorStatus.INVALID_ARGUMENT),
        (lambda: start(prepared, asked, deadline_ns=1), ErrorStatus.MISSED_DEADLINE_PERSISTENT),
    ]
    for call, status in cases:
        with pytest.raises(HalError) as caught:
            call()
        assert caught.value.status == status
    prepared.close()
    with pytest.raises(HalError, match="closed"):
        start(prepared, asked)


@needs_descriptors
def test_many_leave_nothing_behind(device: Device) -> None:
    prepared = prepare(device, doubling(4))

    def once() -> None:
        pairs = [arrays() for _ in range(8)]
        gate = Fence()
        given = [start(prepared, request([source], [result]), gate)[0] for source, result in pairs]
        gate.signal()
        assert [end_of(fence) for fence in given] == [FenceStatus.SIGNALLED] * 8
        assert all(np.array_equal(result, 2 * source) for source, result in pairs)

    once()
    before = open_descriptors()
    for _ in range(10):
        once()
    end = time.monotonic() + PATIENCE_S  # the threads close their descriptors just after they have signalled
    while open_descriptors() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert open_descriptors() <= before


@pytest.mark.parametrize("signalled", [False, True])
def test_a_program_may_end_with_fenced_executions_open(device: Device, signalled: bool) -> None:
    code = f"""
from nn_runtime.hal.fences import Fence
prepared = prepare(device, doubling(64))
gate = Fence()
arrays = [(np.ones((64, 16), np.float32), np.empty((64, 16), np.float32)) for _ in range(20)]
for source, result in arrays:
    prepared.execute_fenced(request([source], [result]), [gate.fd], False, None, None, None)
if {signalled}:
    gate.signal()
print("end")
"""
    assert ended(start_python(code, device)) == (0, "end\n", "")
