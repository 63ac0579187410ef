# SPDX-License-Identifier: Apache-2.0
"""Models that a driver in another process has prepared: they behave as in this one."""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.hal.fences import Fence, FenceStatus, close, wait
from nn_runtime.hal.interfaces import (
    CacheRequest,
    ReportsProfile,
    ReportsStatistics,
    TakesCompilationAttributes,
    TakesExecutionAttributes,
)
from nn_runtime.hal.memory import HardwareBuffer, SharedMemory
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.remote_channel import MOST_DESCRIPTORS, PASSES_DESCRIPTORS
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    OutputShape,
    Priority,
    Request,
    Timing,
)
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.hal.models import add_model, request
from tests.nn_runtime.hal.remote_driver import (
    MINE,
    allocated,
    arrays,
    message_of,
    prepare,
    shared_request,
    start,
    status_of,
    token_request,
    unary,
    unary_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_executions_of_arrays(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    inputs, output = arrays()
    once = request(inputs, [output])
    for n in range(3):
        inputs[0][:] = n
        result = prepared.execute_synchronously(once, True, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        assert result.timing == Timing(5_000, 6_000)
    again = request([inputs[0], inputs[0]], [output])
    prepared.execute_synchronously(again, False, None, None)
    np.testing.assert_array_equal(output, 2 * inputs[0])
    prepared.close()
    prepared.close()
    with pytest.raises(HalError, match=r"object \d+ is closed") as caught:
        prepared.execute_synchronously(again, False, None, None)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_executions_in_shared_memory(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    for pool, shared in (shared_request(), shared_request()):
        pool.array()[:16].view(np.float32)[:] = 2
        prepared.execute_synchronously(shared, False, None, None)
        np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 2)
    blob = HardwareBuffer(192)
    shared = Request(shared.inputs, shared.outputs, (blob,))
    blob.array()[:16].view(np.float32)[:] = 3
    prepared.execute_synchronously(shared, False, None, None)
    np.testing.assert_array_equal(blob.array()[128:144].view(np.float32), 3)


def test_results_of_unknown_size(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model((2, 2), (0, 2)))
    inputs, _ = arrays()
    larger = np.full((3, 2), -1, np.float32)
    result = prepared.execute_synchronously(request(inputs, [larger]), False, None, None)
    assert result.output_shapes == (OutputShape((2, 2)),)
    np.testing.assert_array_equal(larger.reshape(-1)[:4], (inputs[0] + inputs[1]).reshape(-1))
    np.testing.assert_array_equal(larger.reshape(-1)[4:], -1)
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(request(inputs, [np.zeros((1, 2), np.float32)]), False, None, None)
    assert caught.value.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert caught.value.output_shapes == (OutputShape((2, 2), False),)


def test_errors_of_the_driver_keep_status_and_message(shared_device: RemoteDevice) -> None:
    values = np.zeros(4, np.float32)
    prepared = prepare(shared_device, unary(OperationCode.ABS))
    with pytest.raises(HalError, match="told so by the model") as caught:
        prepared.execute_synchronously(request([values], [values.copy()]), False, None, None)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    starved = prepare(shared_device, unary(OperationCode.NEG))
    with pytest.raises(HalError, match="MemoryError: 3 GiB") as caught:
        starved.execute_synchronously(request([values], [values.copy()]), False, None, None)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    foreign = prepare(shared_device, unary(OperationCode.FLOOR))
    with pytest.raises(HalError, match="KeyError: 'foreign'") as caught:
        foreign.execute_synchronously(request([values], [values.copy()]), False, None, None)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    leaving = prepare(shared_device, unary(OperationCode.EXP))
    with pytest.raises(HalError, match="SystemExit: enough") as caught:
        leaving.execute_synchronously(request([values], [values.copy()]), False, None, None)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert shared_device.service.starts == 1


def test_profiles_and_attributes(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    inputs, output = arrays()
    assert isinstance(prepared, ReportsProfile)
    assert isinstance(prepared, TakesExecutionAttributes)
    result, profile = prepared.execute_profiled(request(inputs, [output]), None, None)
    assert [row.kernel for row in profile.rows] == ["kernel"]
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    dynamic = prepare(shared_device, add_model((2, 2), (0, 2)))
    assert isinstance(dynamic, ReportsProfile)
    result, _ = dynamic.execute_profiled(request(inputs, [np.zeros((3, 2), np.float32)]), None, None)
    assert result.output_shapes == (OutputShape((2, 2)),)
    attributes = (("com.example", 1, b"data"),)
    result = prepared.execute_with_attributes(request(inputs, [output]), False, None, None, attributes)
    assert result.timing == Timing(1, 10)
    assert isinstance(shared_device, TakesCompilationAttributes)
    other = shared_device.prepare_model_with_attributes(add_model(), *MINE, None, None, attributes)
    other.execute_synchronously(request(inputs, [output]), False, None, None)


@pytest.fixture(scope="module")
def repeating_device() -> Iterator[RemoteDevice]:
    made = start("tests.nn_runtime.hal.hosted_drivers:repeating")
    yield made
    made.close()


LOOP_NS, DURATION_NS = 222, 10**13
ATTRIBUTES = (("com.example", 1, b"data"),)


def test_all_that_is_asked_for_reaches_the_driver(repeating_device: RemoteDevice, tmp_path: Path) -> None:
    """How to prepare, with which cache files, and how long an execution and its loops may take."""
    device, deadline_ns = repeating_device, time.monotonic_ns() + 10**12
    for size in range(3):
        (tmp_path / str(size)).write_bytes(bytes(size))
    files = [os.open(tmp_path / str(size), os.O_RDWR) for size in range(3)]
    cache = CacheRequest(tuple(files[:2]), tuple(files[2:]), bytes(range(32)))
    sent = ([0, 1], [2], cache.token) if PASSES_DESCRIPTORS else None
    options = (ExecutionPreference.LOW_POWER, Priority.HIGH, deadline_ns)
    prepared = prepare(device, add_model())
    assert isinstance(device, TakesCompilationAttributes)
    assert isinstance(prepared, ReportsProfile)
    assert isinstance(prepared, TakesExecutionAttributes)
    burst = prepared.configure_execution_burst()
    _pool, shared = shared_request()
    roles = [BufferRole(0, 1, 0.5)], [BufferRole(0, 0, 1.0)]
    buffer, _ = device.allocate(BufferDesc(), [prepared], [], [])
    memory = SharedMemory.create(64)
    how = (deadline_ns, LOOP_NS)
    calls: list[tuple[Callable[[], object], tuple[object, ...]]] = [
        (lambda: device.prepare_model(add_model(), *options, None), (*options, None)),
        (
            lambda: device.prepare_model_with_attributes(add_model(), *options, cache, ATTRIBUTES),
            (*options, sent, ATTRIBUTES),
        ),
        (lambda: device.allocate(BufferDesc((2, 2)), [prepared], *roles), (BufferDesc((2, 2)), *roles)),
        (lambda: prepared.execute_synchronously(shared, True, *how), (True, *how)),
        (lambda: prepared.execute_synchronously(shared, False, None, LOOP_NS), (False, None, LOOP_NS)),
        (lambda: prepared.execute_profiled(shared, *how), how),
        (lambda: prepared.execute_with_attributes(shared, True, *how, ATTRIBUTES), (True, *how, ATTRIBUTES)),
        (lambda: burst.execute(shared, False, *how), (False, *how)),
        (lambda: buffer.copy_to(memory), (64,)),
        (lambda: buffer.copy_from(memory, (2, 8)), (64, (2, 8))),
    ]
    if PASSES_DESCRIPTORS:
        calls += [
            (lambda: device.prepare_model(add_model(), *options, cache), (*options, sent)),
            (lambda: device.prepare_model_from_cache(deadline_ns, cache), (deadline_ns, sent)),
            (
                lambda: prepared.execute_fenced(shared, files[:2], True, *how, DURATION_NS),
                (2, True, *how, DURATION_NS),
            ),
        ]
    for call, wanted in calls:
        assert message_of(call) == repr(wanted)
    for fd in files:
        os.close(fd)


@pytest.mark.parametrize("measure", [True, False])
def test_a_thread_that_executes_after_fences_asks_for_the_same(repeating_device: RemoteDevice, measure: bool) -> None:
    """The duration counts from the fences on: the earlier end of the two holds."""
    prepared = prepare(repeating_device, add_model())
    inputs, output = arrays()
    deadline_ns = time.monotonic_ns() + 10**13
    for duration_ns in (2 * 10**13, 10**12):
        fence, callback = prepared.execute_fenced(
            request(inputs, [output]), [], measure, deadline_ns, LOOP_NS, duration_ns
        )
        assert fence is not None
        assert wait(fence, 60) == FenceStatus.FAILED
        close(fence)
        measured, end_ns, loop_ns = ast.literal_eval(message_of(callback.get_execution_info))
        assert (measured, loop_ns) == (measure, LOOP_NS)
        assert end_ns == deadline_ns if duration_ns > 10**13 else end_ns < deadline_ns


def test_what_is_closed_is_closed_in_the_driver_once() -> None:
    device = start("tests.nn_runtime.hal.hosted_drivers:repeating")
    assert isinstance(device, ReportsStatistics)
    prepared = prepare(device, add_model())
    burst = prepared.configure_execution_burst()
    buffer, _ = device.allocate(BufferDesc(), [prepared], [], [])
    burst.free_memory(SharedMemory.create(64))
    for _ in range(2):
        for held in (buffer, burst, prepared):
            held.close()
    assert device.statistics() == {"closed": 111, "freed": 64}
    device.close()
    for held in (buffer, burst, prepared):
        held.close()


def test_bursts(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    burst = prepared.configure_execution_burst()
    pool, shared = shared_request()
    for n in range(3):
        pool.array()[:16].view(np.float32)[:] = n
        burst.execute(shared, False, None, None)
        np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), n)
    burst.free_memory(pool)
    burst.close()
    burst.close()


@pytest.mark.parametrize("in_arrays", [True, False])
def test_fences(shared_device: RemoteDevice, in_arrays: bool) -> None:
    prepared = prepare(shared_device, add_model())
    pool, shared = shared_request()
    inputs, output = arrays()
    call = request(inputs, [output]) if in_arrays else shared
    first = Fence()
    fence, callback = prepared.execute_fenced(call, [first.fd], True, None, None, None)
    assert fence is not None
    assert wait(fence, 0) == FenceStatus.PENDING
    assert status_of(callback.get_execution_info) == ErrorStatus.GENERAL_FAILURE
    inputs[0][:] = 5
    pool.array()[:16].view(np.float32)[:] = 5
    first.signal()
    assert wait(fence, 10) == FenceStatus.SIGNALLED
    launched, fenced = callback.get_execution_info()
    assert fenced == Timing(5_000, 6_000)
    assert launched == fenced or (in_arrays and launched.time_in_driver_ns > 6_000)  # with the wait, if that was ours
    np.testing.assert_array_equal(output if in_arrays else pool.array()[128:144].view(np.float32)[0],
                                  inputs[0] + inputs[1] if in_arrays else 5)  # fmt: skip
    failed = Fence()
    failed.signal(False)
    second, other = prepared.execute_fenced(call, [failed.fd], True, None, None, None)
    assert second is not None
    assert wait(second, 10) == FenceStatus.FAILED
    assert status_of(other.get_execution_info) == ErrorStatus.GENERAL_FAILURE
    for fd in (fence, second):
        close(fd)
    assert status_of(lambda: prepared.execute_fenced(call, [-1], True, None, None, None)) == (
        ErrorStatus.INVALID_ARGUMENT
    )
    dynamic = prepare(shared_device, add_model((2, 2), (0, 2)))
    assert status_of(lambda: dynamic.execute_fenced(call, [], True, None, None, None)) == ErrorStatus.INVALID_ARGUMENT


@pytest.mark.parametrize("entry", ["plain", "terse"])
def test_a_fenced_execution_that_is_over_has_no_fence(entry: str) -> None:
    devices = hosted(f"tests.nn_runtime.hal.hosted_drivers:{entry}")
    device = devices[0]
    assert isinstance(device, RemoteDevice)
    pool, shared = shared_request()
    pool.array()[:16].view(np.float32)[:] = 5
    fence, callback = prepare(device, add_model()).execute_fenced(shared, [], False, None, None, None)
    if PASSES_DESCRIPTORS:
        assert fence is None
    else:
        assert fence is not None
        assert wait(fence, 60) == FenceStatus.SIGNALLED
        close(fence)
    np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 5)
    assert callback.get_execution_info() == (Timing(), Timing())
    for one in devices:
        one.close()  # type: ignore[union-attr]


@pytest.mark.skipif(not PASSES_DESCRIPTORS, reason="descriptors are not passed here")
@pytest.mark.parametrize("count", [MOST_DESCRIPTORS, MOST_DESCRIPTORS + 1, 2 * MOST_DESCRIPTORS])
def test_an_execution_waits_for_all_of_many_fences(shared_device: RemoteDevice, count: int) -> None:
    """Where one message cannot carry them, a thread of this process waits."""
    prepared = prepare(shared_device, add_model())
    pool, shared = shared_request()
    signalled, last = Fence(), Fence()
    signalled.signal()
    fence, _ = prepared.execute_fenced(shared, [signalled.fd] * (count - 1) + [last.fd], False, None, None, None)
    assert fence is not None
    assert wait(fence, 0.1) == FenceStatus.PENDING
    pool.array()[:16].view(np.float32)[:] = 5
    last.signal()
    assert wait(fence, 10) == FenceStatus.SIGNALLED
    np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 5)
    close(fence)


@needs_descriptors
@pytest.mark.skipif(not PASSES_DESCRIPTORS, reason="descriptors are not passed here")
def test_fences_that_have_signalled_are_watched_no_longer(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    _pool, shared = shared_request()

    def execute(rounds: int) -> None:
        for _ in range(rounds):
            fence, _ = prepared.execute_fenced(shared, [], False, None, None, None)
            assert fence is not None
            assert wait(fence, 10) == FenceStatus.SIGNALLED
            close(fence)

    processes = (os.getpid(), shared_device.service.host().pid)
    execute(2)
    before = [open_descriptors(pid) for pid in processes]
    execute(20)
    for pid, count in zip(processes, before, strict=True):
        assert open_descriptors(pid) <= count + 5


@needs_descriptors
@pytest.mark.skipif(not PASSES_DESCRIPTORS, reason="descriptors are not passed here")
@pytest.mark.parametrize(
    ("free", "status", "reason"),
    [
        (0, ErrorStatus.GENERAL_FAILURE, "not all of its file descriptors could be taken, but 0: too many"),
        (1, ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "hosted: sync fence: no descriptor"),
    ],
)
def test_a_fence_for_which_there_is_no_descriptor(
    device: RemoteDevice, free: int, status: ErrorStatus, reason: str
) -> None:
    resource = pytest.importorskip("resource")  # of Unix alone
    prepared = prepare(device, add_model())
    _pool, shared = shared_request()
    prepared.execute_synchronously(shared, False, None, None)
    before, limits, filled = open_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], before + 64), limits[1]))
        with contextlib.suppress(OSError):
            while True:
                filled.append(os.dup(0))
        for fd in filled[:free]:
            os.close(fd)
        del filled[:free]
        with pytest.raises(HalError, match=reason) as caught:
            prepared.execute_fenced(shared, [], False, None, None, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in filled:
            os.close(fd)
    assert caught.value.status == status
    assert open_descriptors() <= before
    prepared.execute_synchronously(shared, False, None, None)


def test_caches(shared_device: RemoteDevice, tmp_path: Path) -> None:
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    cache = CacheRequest(files[:1], files[1:], bytes(32))
    assert status_of(lambda: shared_device.prepare_model_from_cache(None, cache)) == ErrorStatus.GENERAL_FAILURE
    shared_device.prepare_model(add_model(), *MINE, None, cache)
    assert all((tmp_path / str(n)).stat().st_size for n in range(2))
    prepared = shared_device.prepare_model_from_cache(None, cache)
    inputs, output = arrays()
    prepared.execute_synchronously(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    for fd in files:
        os.close(fd)


@needs_descriptors
@pytest.mark.skipif(not PASSES_DESCRIPTORS, reason="descriptors are not passed here")
def test_descriptors_that_are_passed_are_closed_in_the_driver(shared_device: RemoteDevice, tmp_path: Path) -> None:
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    cache = CacheRequest(files[:1], files[1:], bytes(32))
    unknown = CacheRequest(files[:1], files[1:], bytes(31) + b"1")
    _pool, shared = shared_request()
    gate = Fence()
    gate.signal()

    def pass_all() -> None:
        prepared = shared_device.prepare_model(add_model(), *MINE, None, cache)
        shared_device.prepare_model_from_cache(None, cache).close()
        assert status_of(lambda: shared_device.prepare_model_from_cache(None, unknown)) == ErrorStatus.GENERAL_FAILURE
        fence, _ = prepared.execute_fenced(shared, [gate.fd, gate.fd], False, None, None, None)
        assert fence is not None
        assert wait(fence, 10) == FenceStatus.SIGNALLED
        close(fence)
        prepared.close()

    counts = []
    for rounds in (2, 10):
        for _ in range(rounds):
            pass_all()
        gc.collect()  # lets go of what the driver's process keeps for this one
        shared_device.get_status()
        counts.append(open_descriptors(shared_device.service.host().pid))
    assert counts[1] <= counts[0] + 5
    for fd in files:
        os.close(fd)


def test_buffers_and_tokens(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    buffer, token = allocated(shared_device, prepared)
    pool = SharedMemory.create(16)
    assert status_of(lambda: buffer.copy_to(pool)) == ErrorStatus.GENERAL_FAILURE
    pool.array().view(np.float32)[:] = 3
    buffer.copy_from(pool, ())
    output = np.zeros((2, 2), np.float32)
    prepared.execute_synchronously(token_request(token, output), False, None, None)
    np.testing.assert_array_equal(output, 4)
    buffer.copy_to(pool)
    buffer.close()
    with pytest.raises(HalError, match=f"no buffer has the token {token}") as caught:
        prepared.execute_synchronously(token_request(token, output), False, None, None)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_tokens_of_other_processes_mean_nothing(shared_device: RemoteDevice, device: RemoteDevice) -> None:
    mine, other = prepare(shared_device, add_model()), prepare(device, add_model())
    first, token = allocated(shared_device, mine)
    second, foreign = allocated(device, other)
    assert token != foreign
    output = np.zeros((2, 2), np.float32)
    for wrong in (foreign, 1, 2):
        call = token_request(wrong, output)
        refused = status_of(lambda call=call: mine.execute_synchronously(call, False, None, None))
        assert refused == ErrorStatus.INVALID_ARGUMENT
    for stranger in (other, SampleDevice("sample").prepare_model(add_model(), *MINE, None, None)):
        with pytest.raises(HalError, match="hosted: a prepared model of another device") as caught:
            shared_device.allocate(BufferDesc(), [stranger], [BufferRole(0, 0, 1.0)], [])
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    first.close()
    second.close()


def test_replies_that_are_none() -> None:
    device = start("tests.nn_runtime.hal.hosted_drivers:wrong")
    prepared = prepare(device, add_model())
    pool, shared = shared_request()
    inputs, output = arrays()
    wrong: dict[str, Callable[[], object]] = {
        "prepare_model: wanted an IPreparedModel from the driver, got NoneType": lambda: prepare(
            device, unary(OperationCode.NEG)
        ),
        "allocate: wanted an IBuffer from the driver, got object": lambda: allocated(device, prepared),
        "configure_execution_burst: wanted an IBurstContext from the": prepared.configure_execution_burst,
        "output shapes: wanted a Sequence from the driver, got NoneType": lambda: prepare(
            device, unary(OperationCode.RELU)
        ).execute_synchronously(unary_request(), False, None, None),
    }
    if PASSES_DESCRIPTORS:
        wrong["execute_fenced: wanted an IFencedExecutionCallback from"] = lambda: prepared.execute_fenced(
            shared, [], False, None, None, None
        )
    for message, call in wrong.items():
        assert message in message_of(call)
    fence, callback = prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
    assert fence is not None
    assert wait(fence, 60) == FenceStatus.FAILED
    close(fence)
    assert message_of(callback.get_execution_info) == (
        "the driver's shape of output 0: dimensions [1, 2] contradict [2, 2]"
    )
    pool.close()
    device.close()


def test_executions_of_several_threads_run_at_once(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    failures: list[object] = []

    def work(factor: int) -> None:
        a = np.full((2, 2), factor, np.float32)
        output = np.zeros((2, 2), np.float32)
        call = request([a, a], [output])
        for _ in range(50):
            prepared.execute_synchronously(call, False, None, None)
            if not (output == 2 * factor).all():
                failures.append(output.copy())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_one_request_executed_by_several_threads_at_once(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    inputs, output = arrays()
    call = request(inputs, [output])
    threads = [
        threading.Thread(target=lambda: [prepared.execute_synchronously(call, False, None, None) for _ in range(30)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])


@needs_descriptors
def test_nothing_is_left_over_by_many_requests(shared_device: RemoteDevice) -> None:
    def once(closes: bool) -> None:
        prepared = prepare(shared_device, add_model())
        inputs, output = arrays()
        prepared.execute_synchronously(request(inputs, [output]), False, None, None)
        burst = prepared.configure_execution_burst()
        burst.execute(request(inputs, [output]), False, None, None)
        buffer, _ = allocated(shared_device, prepared)
        fence, _ = prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
        if fence is not None:
            wait(fence, 10)
            close(fence)
        if closes:
            buffer.close()

    processes = (os.getpid(), shared_device.service.host().pid)
    counts = []
    for _ in range(2):
        for at in range(15):
            once(closes=at % 2 == 0)
        gc.collect()  # lets go of what the driver's process keeps for this one
        shared_device.get_status()
        time.sleep(0.1)
        counts.append([open_descriptors(pid) for pid in processes])
    for before, after in zip(*counts, strict=True):
        assert after <= before + 3
