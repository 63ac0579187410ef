# SPDX-License-Identifier: Apache-2.0
"""The process of a driver dies alone, is started anew once, ends with the application (AOSP Resilient* tests)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.errors import DeadObject, ResourceExhausted
from nn_runtime.execution import Execution
from nn_runtime.hal import remote_process
from nn_runtime.hal.fences import HAS_EVENTFD, Fence, FenceStatus, close, wait
from nn_runtime.hal.interfaces import (
    CacheRequest,
    UnusableDevice,
)
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.remote import RemoteDevice, hosted
from nn_runtime.hal.types import (
    DeviceStatus,
    ErrorStatus,
    ExecutionPreference,
    HalError,
    Priority,
    Timing,
)
from tests.nn_runtime import graphs
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.hal.hosted_drivers import BREAKING, CHANGING, DESCRIPTION
from tests.nn_runtime.hal.models import add_model, request
from tests.nn_runtime.hal.remote_driver import (
    ANSWER_S,
    ENTRY,
    MINE,
    allocated,
    arrays,
    is_running,
    kill,
    message_of,
    prepare,
    run_script,
    shared_request,
    start,
    status_of,
    token_request,
    unary,
    unary_request,
    wait_for_calls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.mark.parametrize("in_arrays", [True, False])
def test_a_driver_killed_in_the_middle_of_an_execution(device: RemoteDevice, in_arrays: bool) -> None:
    prepared = prepare(device, unary(OperationCode.TANH))
    shared = unary_request()
    values = np.zeros(4, np.float32)
    call = request([values], [values.copy()]) if in_arrays else shared
    pid = device.service.host().pid
    killed: list[float] = []

    def kill_it() -> None:
        wait_for_calls(device, 1)
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_it)
    killer.start()
    assert status_of(lambda: prepared.execute_synchronously(call, False, None, None)) == ErrorStatus.DEAD_OBJECT
    assert time.monotonic() - killed[0] < ANSWER_S
    killer.join()
    device.service.host()._watcher.join(ANSWER_S)
    assert not is_running(pid)
    again = prepare(device, add_model())
    inputs, output = arrays()
    again.execute_synchronously(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    assert device.service.starts == 2


@pytest.mark.parametrize("is_called", [True, False])
def test_a_death_is_logged_with_its_status(
    device: RemoteDevice, is_called: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host = device.service.host()
    if is_called:
        values = np.zeros(4, np.float32)
        suicidal = prepare(device, unary(OperationCode.LOGISTIC))
        with pytest.raises(HalError):
            suicidal.execute_synchronously(request([values], [values]), False, None, None)
        host._watcher.join(60)
    else:
        kill(device)
    assert f"the process of the driver {ENTRY} ended with status -{signal.SIGKILL.value}" in caplog.text
    caplog.clear()
    device.get_status()
    assert f"the driver {ENTRY} was started anew in process {device.service.host().pid}" in caplog.text
    caplog.clear()
    device.close()
    assert not caplog.text


def test_a_process_that_lost_the_thread_of_a_call_ends(device: RemoteDevice) -> None:
    host = device.service.host()
    values = np.zeros(4, np.float32)
    prepared = prepare(device, unary(OperationCode.SIN))
    status = status_of(lambda: prepared.execute_synchronously(request([values], [values]), False, None, None))
    assert status == ErrorStatus.DEAD_OBJECT
    host._watcher.join(60)
    assert not is_running(host.pid)
    assert device.get_status() == DeviceStatus.AVAILABLE
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
    wait_for_calls(device, len(threads))
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
    wait_for_calls(device, 1)  # that of the arrays, by a thread of this process
    os.kill(device.service.host().pid, signal.SIGKILL)
    for fence, callback in pending:
        assert fence is not None
        assert wait(fence, ANSWER_S) == FenceStatus.FAILED
        assert status_of(callback.get_execution_info) == ErrorStatus.DEAD_OBJECT
        close(fence)


@needs_descriptors
@pytest.mark.skipif(not HAS_EVENTFD, reason="fences of others can be failed by eventfd alone")
def test_a_fence_of_a_process_that_has_died_meanwhile_fails(device: RemoteDevice) -> None:
    """Between its answer and the watch."""
    host = device.service.host()
    kill(device)
    before = open_descriptors()
    for _ in range(10):
        fence = Fence()
        host.watch_fence(fence.fd)
        assert wait(fence.fd, 0) == FenceStatus.FAILED
        fence.close()
    assert open_descriptors() <= before


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


def test_a_copy_goes_to_a_buffer_of_the_driver_started_anew_unless_it_was_closed(device: RemoteDevice) -> None:
    """Whether the death shows before the copy or in it."""
    prepared = prepare(device, add_model())
    buffer, token = allocated(device, prepared)
    pool = SharedMemory.create(16)
    pool.array().view(np.float32)[:] = 3
    os.kill(device.service.host().pid, signal.SIGKILL)
    buffer.copy_from(pool, ())
    pool.array()[:] = 0
    buffer.copy_to(pool)
    assert pool.array().view(np.float32).tolist() == [3] * 4
    assert device.service.starts == 2
    buffer.close()
    kill(device)
    with pytest.raises(HalError, match=f"buffer {token} is closed") as caught:
        buffer.copy_to(pool)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


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


def test_a_driver_that_comes_back_with_fewer_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = hosted("tests.nn_runtime.hal.hosted_drivers:plain")
    assert isinstance(first, RemoteDevice)
    monkeypatch.setenv(CHANGING, "fewer")
    kill(first)
    with pytest.raises(HalError, match="second: the driver died and came back as another") as caught:
        second.get_status()  # type: ignore[union-attr]
    assert caught.value.status == ErrorStatus.DEAD_OBJECT
    assert first.get_status() == DeviceStatus.AVAILABLE
    for one in (first, second):
        one.close()  # type: ignore[union-attr]


def test_a_model_is_prepared_again_without_the_deadline_and_the_cache_of_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one may have passed, the other be closed."""
    device = start("tests.nn_runtime.hal.hosted_drivers:repeating")
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    how = (ExecutionPreference.SUSTAINED_SPEED, Priority.HIGH)
    deadline_ns = time.monotonic_ns() + 10**12
    prepared = device.prepare_model(add_model(), *how, deadline_ns, CacheRequest(files[:1], files[1:], bytes(32)))
    for fd in files:
        os.close(fd)
    monkeypatch.setenv(CHANGING, "repeats")
    kill(device)
    _pool, shared = shared_request()
    message = message_of(lambda: prepared.execute_synchronously(shared, False, None, None))
    assert message == repr((*how, None, None))
    device.close()


def test_what_was_prepared_from_cache_is_prepared_again_where_it_is_known_how(
    device: RemoteDevice, tmp_path: Path
) -> None:
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    cache = CacheRequest(files[:1], files[1:], bytes(32))
    device.prepare_model(add_model(), *MINE, None, cache)
    prepared = device.prepare_model_from_cache(None, cache)
    prepared.prepare_again_by(lambda: prepare(device, add_model()))
    kill(device)
    inputs, output = arrays()
    for _ in range(3):
        output[:] = 0
        prepared.execute_synchronously(request(inputs, [output]), False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        gc.collect()
    for fd in files:
        os.close(fd)


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
        for one in (prepared, fresh):  # what was prepared before is so again
            out[:] = 0
            one.execute_synchronously(request([a, a], [out]), False, None, None)
            assert (out == 2).all()
        print(device.statistics()["pid"], flush=True)
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    found = run_script(code)
    assert len(set(found.split())) == 2


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


def test_threads_in_calls_say_nothing_as_the_interpreter_ends() -> None:
    code = f"""
        import atexit, threading, time
        atexit.register(time.sleep, 0.5)  # after the drivers have ended
        from nn_runtime.hal.remote import hosted
        device = hosted({ENTRY!r})[0]
        calls = threading.Barrier(6)
        def ask():
            calls.wait()
            while True:
                device.statistics()
        for _ in range(5):
            threading.Thread(target=ask, daemon=True).start()
        calls.wait()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_waits_for_a_thread_in_a_call_to_a_process_that_has_ended() -> None:
    host, held, go = remote_process.HostProcess(ENTRY), threading.Event(), threading.Event()

    def stay() -> None:
        with host._lock:
            held.set()
            go.wait(60)

    threading.Thread(target=stay, daemon=True).start()
    assert held.wait(60)
    host.close()
    refused = list[ErrorStatus]()

    def ask() -> None:
        with pytest.raises(HalError) as caught:
            host.pool_number(SharedMemory.create(64))
        refused.append(caught.value.status)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    go.set()
    assert refused == [ErrorStatus.DEAD_OBJECT]


@needs_descriptors
def test_an_interrupted_call_leaves_nothing_in_the_process_that_was_to_be_forgotten(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    host = device.service.host()
    device.get_status()
    before = open_descriptors(host.pid)
    for _ in range(10):
        memory = SharedMemory.create(64)
        host.pool_number(memory)
        del memory
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(remote_process.Channel, "send", interrupted)
            host.call("status", 0)
    device.get_status()
    time.sleep(0.05)  # for the ends of the channels that were given up
    assert open_descriptors(host.pid) <= before + 2


def test_a_process_that_was_interrupted_as_it_opened_a_channel_ends(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may still come: it is asked nothing more."""

    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    host = device.service.host()
    host._free.clear()
    monkeypatch.setattr(host._control, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.get_status()
    host._watcher.join(60)
    assert not is_running(host.pid)
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 2


def test_an_answer_to_the_opening_of_a_channel_that_makes_no_sense_fails_the_call_alone(
    device: RemoteDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = device.service.host()
    receive = host._control.receive

    def senseless() -> NoReturn:
        receive()
        raise remote_process.BadMessage("made up")

    host._free.clear()
    with monkeypatch.context() as patched:
        patched.setattr(host._control, "receive", senseless)
        with pytest.raises(HalError, match="open_channel: bad message: made up") as caught:
            device.get_status()
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 1


@pytest.mark.skipif(not hasattr(os, "getsid"), reason="the system has no sessions")
def test_what_a_terminal_sends_is_the_applications(device: RemoteDevice) -> None:
    pid = device.service.host().pid
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGINT)
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.service.starts == 1


def test_what_the_process_is_to_forget_is_said_once(device: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    send, said = remote_process.Channel.send, list[object]()

    def heard(channel: remote_process.Channel, message: tuple[object, ...], *descriptors: Sequence[int]) -> None:
        said.append(message[-1])
        send(channel, message, *descriptors)

    host = device.service.host()
    device.get_status()
    number = host.new_number()
    monkeypatch.setattr(remote_process.Channel, "send", heard)
    host.forget(number)
    for _ in range(2):
        device.get_status()
    assert said == [[number], []]


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    before = open_descriptors()
    with pytest.raises(HalError, match=r"no process can be started for a driver by .*python: ") as caught:
        hosted(ENTRY)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert open_descriptors() <= before


def test_a_driver_without_usable_devices_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    close_host = remote_process.HostProcess.close
    monkeypatch.setattr(remote_process.HostProcess, "close", lambda host: [started.append(host.pid), close_host(host)])
    assert hosted("tests.nn_runtime.hal.hosted_drivers:nothing") == [UnusableDevice("broken", "told so", DESCRIPTION)]
    assert [is_running(pid) for pid in started] == [False]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_driver_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_process, "_EXIT_S", 0.1)
    device = start()
    pid = device.service.host().pid
    os.kill(pid, signal.SIGSTOP)
    device.close()
    assert not is_running(pid)


def test_a_closed_device_starts_no_driver() -> None:
    device = start()
    prepared = prepare(device, add_model())
    device.close()
    for call in (device.get_status, lambda: prepared.execute_synchronously(shared_request()[1], False, None, None)):
        assert status_of(call) == ErrorStatus.DEAD_OBJECT
    assert device.service.starts == 1


def test_a_process_that_ends_before_it_connects_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that pass no descriptors; nothing of it is left behind."""
    monkeypatch.setattr(remote_process, "PASSES_DESCRIPTORS", False)
    monkeypatch.setattr(remote_process, "_CHILD", "raise SystemExit")
    before, begun = open_descriptors(), time.monotonic()
    with pytest.raises(HalError, match="the process of a driver does not connect") as caught:
        start()
    assert time.monotonic() - begun < ANSWER_S
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert open_descriptors() <= before
