# SPDX-License-Identifier: Apache-2.0
"""Drivers in another process: they behave alike, die alone, and are started anew once (AOSP Resilient* tests)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import DeviceTypeCode, OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import BadData, DeadObject, ResourceExhausted
from nn_runtime.execution import Execution
from nn_runtime.hal import remote, remote_channel, remote_model, remote_process
from nn_runtime.hal.fences import Fence, FenceStatus, close, wait
from nn_runtime.hal.interfaces import (
    CacheRequest,
    DescribesDevice,
    ExplainsOperations,
    ReportsProfile,
    ReportsStatistics,
    TakesCompilationAttributes,
    TakesExecutionAttributes,
    UnusableDevice,
)
from nn_runtime.hal.memory import HardwareBuffer, SharedMemory
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    DeviceStatus,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Model,
    Operand,
    Operation,
    OutputShape,
    Priority,
    Request,
    RequestArgument,
    Subgraph,
    Timing,
)
from nn_runtime.hal.versions.conversion import without_pointers
from tests.nn_runtime import graphs
from tests.nn_runtime.hal.hosted_drivers import BREAKING, CHANGING, DESCRIPTION, SLOW_S
from tests.nn_runtime.hal.models import FLOATS, INPUT, OUTPUT, add_model, pointer, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.hal.remote_model import RemotePreparedModel

ENTRY = "tests.nn_runtime.hal.hosted_drivers:sample"
MINE = (ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM)
ANSWER_S = 1.0
"""Within so many seconds a dead driver must be seen."""


def unary(code: OperationCode) -> Model:
    operands = (Operand(FLOATS, (4,), lifetime=INPUT), Operand(FLOATS, (4,), lifetime=OUTPUT))
    return Model(Subgraph(operands, (Operation(code, (0,), (1,)),), (0,), (1,)))


def start(entry: str = ENTRY) -> RemoteDevice:
    device = hosted(entry)[0]
    assert isinstance(device, RemoteDevice)
    return device


@pytest.fixture
def device() -> Iterator[RemoteDevice]:
    made = start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_device() -> Iterator[RemoteDevice]:
    made = start()
    yield made
    made.close()


def prepare(device: RemoteDevice, model: Model) -> RemotePreparedModel:
    return device.prepare_model(model, *MINE, None, None)


def arrays() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    return [a, a + 1], np.zeros((2, 2), np.float32)


def shared_request() -> tuple[SharedMemory, Request]:
    pool = SharedMemory.create(192)
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    return pool, Request(tuple(arguments[:2]), tuple(arguments[2:]), (pool,))


def unary_request() -> Request:
    first, second = (RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64))
    return Request((first,), (second,), (SharedMemory.create(128),))


def kill(device: RemoteDevice) -> None:
    host = device.service.host()
    os.kill(host.pid, signal.SIGKILL)
    host._watcher.join(60)
    assert host.dead


def status_of(call: Callable[[], object]) -> ErrorStatus:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status


def is_running(pid: int) -> bool:
    """Tell whether a process is there, be it as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_queries(shared_device: RemoteDevice) -> None:
    device = shared_device
    assert device.name == "hosted"
    assert device.get_version_string() == "1"
    assert device.get_type() == DeviceTypeCode.OTHER
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.get_number_of_cache_files_needed() == (1, 1)
    assert device.get_capabilities().operand_performance[3].exec_time == 0.5
    assert not device.get_supported_extensions()
    assert isinstance(device, DescribesDevice)
    assert device.description() == DESCRIPTION
    assert isinstance(device, ReportsStatistics)
    assert device.statistics() == {"pid": device.service.host().pid}
    assert device.service.host().pid != os.getpid()


def test_several_devices_share_a_process_that_ends_with_the_last() -> None:
    first, second = hosted("tests.nn_runtime.hal.hosted_drivers:plain")
    assert isinstance(first, RemoteDevice)
    assert isinstance(second, RemoteDevice)
    assert first.service is second.service
    assert not isinstance(first, DescribesDevice | ReportsStatistics | TakesCompilationAttributes)
    assert isinstance(first, ExplainsOperations)
    assert list(second.get_supported_operations(add_model())) == [False, True]
    assert second.explain_operations(add_model())[0].reason == "ADD is not on the list"
    pid = first.service.host().pid
    first.close()
    first.close()
    assert is_running(pid)
    second.close()
    assert not is_running(pid)


def test_unusable_and_silent_devices(shared_device: RemoteDevice, caplog: pytest.LogCaptureFixture) -> None:
    offered = hosted(ENTRY)
    assert offered[1] == UnusableDevice("broken", "told so", DESCRIPTION)
    offered[0].close()  # type: ignore[union-attr]
    (speaking,) = hosted("tests.nn_runtime.hal.hosted_drivers:silent")
    assert speaking.name == "speaking"
    assert "silent does not answer its queries" in caplog.text
    speaking.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("entry", ["failing", "missing"])
def test_a_driver_that_cannot_be_loaded(entry: str) -> None:
    with pytest.raises(HalError, match="could not be loaded"):
        hosted(f"tests.nn_runtime.hal.hosted_drivers:{entry}")


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
    foreign = prepare(shared_device, unary(OperationCode.FLOOR))
    with pytest.raises(HalError, match="KeyError: 'foreign'") as caught:
        foreign.execute_synchronously(request([values], [values.copy()]), False, None, None)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


def test_profiles_and_attributes(shared_device: RemoteDevice) -> None:
    prepared = prepare(shared_device, add_model())
    inputs, output = arrays()
    assert isinstance(prepared, ReportsProfile)
    assert isinstance(prepared, TakesExecutionAttributes)
    result, profile = prepared.execute_profiled(request(inputs, [output]), None, None)
    assert [row.kernel for row in profile.rows] == ["kernel"]
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    attributes = (("com.example", 1, b"data"),)
    result = prepared.execute_with_attributes(request(inputs, [output]), False, None, None, attributes)
    assert result.timing == Timing(1, 10)
    assert isinstance(shared_device, TakesCompilationAttributes)
    other = shared_device.prepare_model_with_attributes(add_model(), *MINE, None, None, attributes)
    other.execute_synchronously(request(inputs, [output]), False, None, None)


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


def allocated(device: RemoteDevice, prepared: RemotePreparedModel) -> tuple[remote.RemoteBuffer, int]:
    buffer, token = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
    assert isinstance(buffer, remote.RemoteBuffer)
    return buffer, token


def token_request(token: int, output: np.ndarray) -> Request:
    other = np.ones((2, 2), np.float32)
    first = RequestArgument(location=DataLocation(0))
    return Request((first, pointer(other)), (pointer(output),), (BufferToken(token),))


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
    refused = status_of(lambda: prepared.execute_synchronously(token_request(token, output), False, None, None))
    assert refused == ErrorStatus.INVALID_ARGUMENT


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
    assert status_of(lambda: allocated(shared_device, other)) == ErrorStatus.INVALID_ARGUMENT
    first.close()
    second.close()


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


def count_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_nothing_is_left_over_by_many_requests(shared_device: RemoteDevice) -> None:
    def once() -> None:
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
        if len(inputs) % 2:
            buffer.close()

    processes = (os.getpid(), shared_device.service.host().pid)
    counts = []
    for _ in range(2):
        for _ in range(15):
            once()
        gc.collect()
        shared_device.get_status()
        time.sleep(0.1)
        counts.append([count_descriptors(pid) for pid in processes])
    for before, after in zip(*counts, strict=True):
        assert after <= before + 3


@pytest.mark.parametrize("in_arrays", [True, False])
def test_a_driver_killed_in_the_middle_of_an_execution(device: RemoteDevice, in_arrays: bool) -> None:
    prepared = prepare(device, unary(OperationCode.TANH))
    shared = unary_request()
    values = np.zeros(4, np.float32)
    call = request([values], [values.copy()]) if in_arrays else shared
    pid = device.service.host().pid
    killed: list[float] = []

    def kill_it() -> None:
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(0.3, kill_it)
    timer.start()
    assert status_of(lambda: prepared.execute_synchronously(call, False, None, None)) == ErrorStatus.DEAD_OBJECT
    assert time.monotonic() - killed[0] < ANSWER_S
    timer.join()
    device.service.host()._watcher.join(ANSWER_S)
    assert not is_running(pid)
    again = prepare(device, add_model())
    inputs, output = arrays()
    again.execute_synchronously(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    assert device.service.starts == 2


def test_every_waiting_thread_hears_of_the_death(device: RemoteDevice) -> None:
    prepared = prepare(device, unary(OperationCode.TANH))
    found: list[ErrorStatus] = []

    def work() -> None:
        values = np.zeros(4, np.float32)
        found.append(status_of(lambda: prepared.execute_synchronously(request([values], [values]), False, None, None)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    os.kill(device.service.host().pid, signal.SIGKILL)
    for thread in threads:
        thread.join(ANSWER_S)
        assert not thread.is_alive()
    assert found == [ErrorStatus.DEAD_OBJECT] * 4


def test_pending_fences_fail_when_the_driver_dies(device: RemoteDevice) -> None:
    shared = unary_request()
    values = np.zeros(4, np.float32)
    prepared = prepare(device, unary(OperationCode.TANH))
    pending = [
        prepared.execute_fenced(call, [], False, None, None, None)
        for call in (shared, request([values], [values.copy()]))
    ]
    time.sleep(0.2)
    os.kill(device.service.host().pid, signal.SIGKILL)
    for fence, callback in pending:
        assert fence is not None
        assert wait(fence, ANSWER_S) == FenceStatus.FAILED
        assert status_of(callback.get_execution_info) == ErrorStatus.DEAD_OBJECT
        close(fence)


def test_a_dead_driver_is_started_anew_for_every_call(device: RemoteDevice) -> None:
    calls: list[Callable[[], object]] = [
        device.get_status,
        lambda: device.get_supported_operations(add_model()),
        lambda: prepare(device, add_model()),
        device.statistics,  # type: ignore[attr-defined]
    ]
    for number, call in enumerate(calls):
        kill(device)
        call()
        assert device.service.starts == number + 2


def test_prepared_models_are_prepared_again_and_buffers_lose_what_they_held(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    buffer, token = allocated(device, prepared)
    burst = prepared.configure_execution_burst()
    inputs, output = arrays()
    call = request(inputs, [output])
    prepared.execute_synchronously(call, False, None, None)
    kill(device)
    output[:] = 0
    prepared.execute_synchronously(call, False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    burst.execute(call, False, None, None)
    pool = SharedMemory.create(16)
    refused = status_of(lambda: prepared.execute_synchronously(token_request(token, output), False, None, None))
    assert refused == ErrorStatus.GENERAL_FAILURE  # it holds nothing
    assert status_of(lambda: buffer.copy_to(pool)) == ErrorStatus.GENERAL_FAILURE
    pool.array().view(np.float32)[:] = 3
    buffer.copy_from(pool, ())
    prepared.execute_synchronously(token_request(token, output), False, None, None)
    np.testing.assert_array_equal(output, 4)
    buffer.close()
    burst.close()
    prepared.close()


def test_what_kills_the_driver_twice_is_not_tried_a_third_time(device: RemoteDevice) -> None:
    assert status_of(lambda: prepare(device, unary(OperationCode.RELU6))) == ErrorStatus.DEAD_OBJECT
    assert device.service.starts == 2
    values = np.zeros(4, np.float32)
    suicidal = prepare(device, unary(OperationCode.LOGISTIC))
    for _ in range(2):
        status = status_of(lambda: suicidal.execute_synchronously(request([values], [values]), False, None, None))
        assert status == ErrorStatus.DEAD_OBJECT
    assert device.get_status() == DeviceStatus.AVAILABLE


@pytest.mark.parametrize("change", ["name", "version", "feature level", "type", "extensions", "capabilities"])
def test_a_driver_that_comes_back_as_another_is_not_used(
    device: RemoteDevice, change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepared = prepare(device, add_model())
    monkeypatch.setenv(CHANGING, change)
    kill(device)
    cache = CacheRequest((), (), bytes(32))
    calls: list[Callable[[], object]] = [
        device.get_status,
        lambda: device.get_supported_operations(add_model()),
        lambda: prepare(device, add_model()),
        lambda: device.prepare_model_from_cache(None, cache),
        lambda: allocated(device, prepared),
    ]
    for call in calls:
        with pytest.raises(HalError, match="came back as another") as caught:
            call()
        assert caught.value.status == ErrorStatus.DEAD_OBJECT
    assert device.get_version_string() == "1"
    assert device.service.starts == 2


def test_several_threads_find_it_dead_and_one_starts_it_anew(device: RemoteDevice) -> None:
    kill(device)
    threads = [threading.Thread(target=device.get_status) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert device.service.starts == 2


def test_allocation_and_fences_on_a_dead_driver(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    kill(device)
    buffer, token = allocated(device, prepared)
    assert token > 0
    buffer.close()
    kill(device)
    _, shared = shared_request()
    fence, callback = prepared.execute_fenced(shared, [], False, None, None, None)
    assert fence is not None
    assert wait(fence, 10) == FenceStatus.SIGNALLED
    assert callback.get_execution_info() == (Timing(), Timing())
    close(fence)
    assert device.service.starts == 3


def test_a_driver_that_cannot_be_started_anew_stays_dead(device: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BREAKING, "1")
    prepared = prepare(device, add_model())
    kill(device)
    inputs, output = arrays()
    once = request(inputs, [output])
    cache = CacheRequest((), (), bytes(32))
    calls: list[Callable[[], object]] = [
        device.get_status,
        lambda: device.get_supported_operations(add_model()),
        lambda: prepare(device, add_model()),
        lambda: device.prepare_model_from_cache(None, cache),
        lambda: allocated(device, prepared),
        lambda: prepared.execute_synchronously(once, False, None, None),
        lambda: prepared.execute_fenced(once, [], False, None, None, None),
        prepared.configure_execution_burst,
    ]
    for call in calls:
        assert status_of(call) == ErrorStatus.DEAD_OBJECT
    monkeypatch.delenv(BREAKING)
    assert device.get_status() == DeviceStatus.AVAILABLE


def test_what_was_prepared_from_cache_stays_dead(device: RemoteDevice, tmp_path: Path) -> None:
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    cache = CacheRequest(files[:1], files[1:], bytes(32))
    device.prepare_model(add_model(), *MINE, None, cache)
    prepared = device.prepare_model_from_cache(None, cache)
    kill(device)
    inputs, output = arrays()
    status = status_of(lambda: prepared.execute_synchronously(request(inputs, [output]), False, None, None))
    assert status == ErrorStatus.DEAD_OBJECT
    for fd in files:
        os.close(fd)


def test_the_application_sees_a_dead_object_or_falls_back(device: RemoteDevice) -> None:
    model = graphs.chain_model([OperationCode.LOGISTIC], (4,))
    values, output = np.zeros(4, np.float32), np.full(4, np.nan, np.float32)
    strict = graphs.finished(model, [device])
    with Execution(strict) as execution:
        execution.set_input(0, values)
        execution.set_output(0, output)
        with pytest.raises(DeadObject):
            execution.compute()
    loose = graphs.finished(model, [device], fallback=True)
    (result,) = graphs.run(loose, [values], [(4,)])
    np.testing.assert_allclose(result, 0.5)
    failing = Compilation(graphs.chain_model([OperationCode.ABS], (4,)), [Device(device)])
    failing.finish()
    with pytest.raises(ResourceExhausted):
        graphs.run(failing, [values], [(4,)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_process_of_its_own(shared_device: RemoteDevice) -> None:
    code = f"""
        import os, sys
        import numpy as np
        from nn_runtime.hal.remote import hosted
        from nn_runtime.hal.types import ExecutionPreference, Priority
        from tests.nn_runtime.hal.models import add_model, request
        device = hosted({ENTRY!r})[0]
        prepared = device.prepare_model(add_model(), ExecutionPreference(1), Priority(1), None, None)
        child = os.fork()
        a = np.ones((2, 2), np.float32)
        out = np.zeros((2, 2), np.float32)
        fresh = device.prepare_model(add_model(), ExecutionPreference(1), Priority(1), None, None)
        fresh.execute_synchronously(request([a, a], [out]), False, None, None)
        assert (out == 2).all()
        print(device.statistics()["pid"], flush=True)
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    found = run_script(code)
    assert len(set(found.split())) == 2


def run_script(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["", "import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_the_driver_ends_with_the_application(how: str) -> None:
    code = f"""
        from nn_runtime.hal.remote import hosted
        device = hosted({ENTRY!r})[0]
        print(device.service.host().pid, flush=True)
        {how}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    pid = int(done.stdout)
    until = time.monotonic() + 5
    while time.monotonic() < until and is_running(pid):
        time.sleep(0.05)
    assert not is_running(pid)


def test_the_setting_hosts_every_driver() -> None:
    code = """
        import numpy as np
        from nn_runtime.device import Device
        from nn_runtime.devices import reference_device
        from nn_runtime.hal.remote import RemoteDevice
        from tests.nn_runtime.graphs import Compilation, OperationCode, chain_model, numbers, run
        device = reference_device()
        assert isinstance(device.hal, RemoteDevice), device.hal
        assert device.name == "nnapi-reference"
        compilation = Compilation(chain_model([OperationCode.RELU]), [device])
        compilation.finish()
        (result,) = run(compilation, [numbers(2, 3)], [(2, 3)])
        assert (result == np.maximum(numbers(2, 3), 0)).all()
    """
    run_script(code, NNRT_DRIVER_HOST="process")


def test_an_unknown_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from nn_runtime import devices

    monkeypatch.setenv("NNRT_DRIVER_HOST", "thread")
    with pytest.raises(BadData, match="NNRT_DRIVER_HOST"):
        devices.reference_device.__wrapped__()


def test_without_descriptor_passing_and_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have neither: sockets by port and secret, memory by name."""
    for module in (remote, remote_channel, remote_model, remote_process):
        monkeypatch.setattr(module, "PASSES_DESCRIPTORS", False)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    device = start()
    try:
        prepared = prepare(device, add_model())
        inputs, output = arrays()
        prepared.execute_synchronously(request(inputs, [output]), False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        fence, _ = prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
        assert fence is not None
        assert wait(fence, 10) == FenceStatus.SIGNALLED
        close(fence)
        pool, shared = shared_request()
        pool.array()[:16].view(np.float32)[:] = 2
        threads = [
            threading.Thread(target=prepared.execute_synchronously, args=(shared, False, None, None)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        np.testing.assert_array_equal(pool.array()[128:144].view(np.float32), 2)
        slow = prepare(device, unary(OperationCode.LOGISTIC))
        values = np.zeros(4, np.float32)
        assert status_of(lambda: slow.execute_synchronously(request([values], [values]), False, None, None)) == (
            ErrorStatus.DEAD_OBJECT
        )
    finally:
        device.close()


def test_messages_hold_nothing_but_values_of_the_hal() -> None:
    import socket

    ours, theirs = socket.socketpair()
    channel, other = remote_channel.Channel(ours), remote_channel.Channel(theirs)
    graph = without_pointers(add_model()).main
    sender = threading.Thread(target=lambda: channel.send((graph, [1, 2], b"x" * 2_000_000)))
    sender.start()
    assert other.receive() == (graph, [1, 2], b"x" * 2_000_000)
    sender.join()
    for foreign in (Path("/"), np.zeros(3), add_model().main):
        channel.send(foreign)
        with pytest.raises(remote_channel.BadMessage, match="does not belong into a message"):
            other.receive()
    with pytest.raises(remote_channel.BadMessage, match="cannot be sent"):
        channel.send(lambda: None)
    channel.close()
    with pytest.raises(remote_channel.ChannelClosed):
        other.receive()
    other.close()


def test_bad_messages_are_failures_of_one_call(shared_device: RemoteDevice) -> None:
    host = shared_device.service.host()
    for foreign in (Path("/"), lambda: None):
        with pytest.raises(HalError, match="bad message") as caught:
            host.call("status", 0, foreign)
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    for method, target, arguments in (("status", 77, ()), ("unknown", 0, ()), ("status", 0, (1, 2))):
        with pytest.raises(HalError, match="the driver failed with"):
            host.call(method, target, *arguments)
    assert shared_device.get_status() == DeviceStatus.AVAILABLE


def test_a_driver_without_usable_devices_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    close_host = remote_process.HostProcess.close
    monkeypatch.setattr(remote_process.HostProcess, "close", lambda host: [started.append(host.pid), close_host(host)])
    assert hosted("tests.nn_runtime.hal.hosted_drivers:nothing") == [UnusableDevice("broken", "told so", DESCRIPTION)]
    assert [is_running(pid) for pid in started] == [False]


def test_slow_is_slower_than_an_answer_may_take() -> None:
    assert SLOW_S > 5 * ANSWER_S


@pytest.mark.skipif(not remote_channel.PASSES_DESCRIPTORS, reason="descriptors are not passed here")
def test_a_descriptor_that_is_not_open_harms_nobody(device: RemoteDevice) -> None:
    prepared = prepare(device, add_model())
    _pool, shared = shared_request()
    closed = CacheRequest((10**6,), (10**6 + 1,), bytes(32))
    for call in (
        lambda: prepared.execute_fenced(shared, [10**6], False, None, None, None),
        lambda: device.prepare_model(add_model(), *MINE, None, closed),
    ):
        assert status_of(call) == ErrorStatus.GENERAL_FAILURE
    assert not device.service.host().dead
    assert device.service.starts == 1
    prepared.execute_synchronously(shared, False, None, None)


def test_a_closed_device_starts_no_driver() -> None:
    device = start()
    prepared = prepare(device, add_model())
    device.close()
    for call in (device.get_status, lambda: prepared.execute_synchronously(shared_request()[1], False, None, None)):
        assert status_of(call) == ErrorStatus.DEAD_OBJECT
    assert device.service.starts == 1


def test_a_channel_that_nobody_serves_is_an_error_at_once(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process can start no further thread; the driver lives on."""
    host = device.service.host()
    host._free.clear()
    receive = host._control.receive
    with monkeypatch.context() as patched:
        refusal = ("error", int(ErrorStatus.GENERAL_FAILURE), "can't start new thread", ())
        patched.setattr(host._control, "receive", lambda: (receive(), refusal)[1])
        assert status_of(device.get_status) == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 1
