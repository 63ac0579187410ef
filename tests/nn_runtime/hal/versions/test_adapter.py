# SPDX-License-Identifier: Apache-2.0
"""Drivers of every version as canonical devices (AOSP: unit tests of the HAL utils, 1.0 to 1.3)."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.hal.fences import Fence, FenceStatus, close, wait
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    DeviceStatus,
    ErrorStatus,
    ExecutionPreference,
    ExecutionResult,
    Extension,
    HalError,
    OutputShape,
    Priority,
    Request,
    RequestArgument,
    Timing,
)
from nn_runtime.hal.versions import adapt, convert_to, serve, v1_2
from nn_runtime.hal.versions.adapter import AdaptedDevice
from nn_runtime.hal.versions.callbacks import ExecutionCallback, PreparedModelCallback, ServiceDied
from nn_runtime.testing.sample_drivers import SampleDevice, uniform_capabilities
from tests.nn_runtime.hal.models import add_model, pointer, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nn_runtime.hal.versions.adapted_model import AdaptedPreparedModel

V10, V11, V12, V13 = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)
VERSIONS = (V10, V11, V12, V13)
SUFFIX = {V10: "", V11: "_1_1", V12: "_1_2", V13: "_1_3"}
MINE = (ExecutionPreference.LOW_POWER, Priority.HIGH)
FAILURES = (
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.DEVICE_UNAVAILABLE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
)


class Driver:
    """A driver of a version behind its adapter; methods of `served` are replaced by tests."""

    def __init__(self, version: FeatureLevel) -> None:
        self.version = version
        self.sample = SampleDevice("old", capabilities=uniform_capabilities(0.3, 0.4), version="7")
        self.served = serve(self.sample, version)
        self.device = adapt(self.served, "old")

    def replace(self, name: str, method: Callable[..., object], target: object | None = None) -> None:
        setattr(self.served if target is None else target, name, method)

    def prepare(self, dims: tuple[int, ...] = (2, 2)) -> AdaptedPreparedModel:
        return self.device.prepare_model(add_model((2, 2), dims), *MINE, None, None)

    def prepared_method(self) -> str:
        return "prepare_model" + SUFFIX[self.version]


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    return Driver(request.param)


def raising(error: Exception) -> Callable[..., object]:
    def call(*_arguments: object) -> object:
        raise error

    return call


def arrays() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    return [a, a + 1], np.zeros((2, 2), np.float32)


def status_of(call: Callable[[], object]) -> ErrorStatus:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status


TRANSPORT = ((OSError("the transport broke"), ErrorStatus.GENERAL_FAILURE), (ServiceDied(), ErrorStatus.DEAD_OBJECT))


def test_the_version_is_found_by_the_methods(driver: Driver) -> None:
    assert driver.device.get_feature_level() == driver.version
    assert isinstance(driver.device, AdaptedDevice)
    assert driver.device.name == "old"


def test_queries(driver: Driver) -> None:
    device, has_1_2 = driver.device, driver.version >= V12
    driver.sample.script.extensions = (Extension("com.example", {}),)
    driver.sample.script.cache_files = (1, 2)
    assert device.get_type() == (DeviceTypeCode.OTHER if has_1_2 else DeviceTypeCode.UNKNOWN)
    assert device.get_version_string() == ("7" if has_1_2 else "UNKNOWN")
    assert tuple(device.get_supported_extensions()) == (driver.sample.script.extensions if has_1_2 else ())
    assert device.get_number_of_cache_files_needed() == ((1, 2) if has_1_2 else (0, 0))
    assert device.get_status() == DeviceStatus.AVAILABLE
    assert device.get_capabilities().operand_performance[3].exec_time == 0.3
    device.close()


@pytest.mark.parametrize(("error", "status"), TRANSPORT)
def test_queries_over_a_broken_transport(driver: Driver, error: Exception, status: ErrorStatus) -> None:
    driver.replace("get_capabilities" + SUFFIX[driver.version], raising(error))
    driver.replace("get_supported_operations" + SUFFIX[driver.version], raising(error))
    driver.replace("get_status", raising(error))
    device = driver.device
    calls: list[Callable[[], object]] = [device.get_capabilities, device.get_status]
    calls.append(lambda: device.get_supported_operations(add_model()))
    if driver.version >= V12:
        for name in ("version_string", "type", "supported_extensions", "number_of_cache_files_needed"):
            driver.replace(f"get_{name}", raising(error))
            calls.append(getattr(device, f"get_{name}"))
    for call in calls:
        assert status_of(call) == status


@pytest.mark.parametrize("failure", FAILURES)
def test_queries_that_the_driver_fails(driver: Driver, failure: ErrorStatus) -> None:
    figures = driver.served.get_capabilities()[1]
    driver.replace("get_capabilities" + SUFFIX[driver.version], lambda: (failure, figures))
    driver.replace("get_supported_operations" + SUFFIX[driver.version], lambda _model: (failure, ()))
    assert status_of(driver.device.get_capabilities) == failure
    assert status_of(lambda: driver.device.get_supported_operations(add_model())) == failure
    if driver.version >= V12:
        replies = {"version_string": "", "type": 0, "supported_extensions": ()}
        for name, value in replies.items():
            driver.replace(f"get_{name}", lambda value=value: (failure, value))
            assert status_of(getattr(driver.device, f"get_{name}")) == failure
        driver.replace("get_number_of_cache_files_needed", lambda: (failure, 0, 0))
        assert status_of(driver.device.get_number_of_cache_files_needed) == failure


@pytest.mark.parametrize("version", [V12, V13])
def test_answers_that_make_no_sense_are_failures(version: FeatureLevel) -> None:
    driver = Driver(version)
    for name, reply in (
        ("get_number_of_cache_files_needed", (0, 33, 0)),
        ("get_number_of_cache_files_needed", (0, 0, 33)),
        ("get_version_string", (0, "")),
        ("get_type", (0, 0)),
        ("get_type", (0, 5)),
    ):
        driver.replace(name, lambda reply=reply: reply)
        assert status_of(getattr(driver.device, name)) == ErrorStatus.GENERAL_FAILURE


def test_supported_operations(driver: Driver) -> None:
    driver.sample.operations = {0}
    assert list(driver.device.get_supported_operations(add_model())) == [True, False]


def test_a_miscounting_driver_supports_nothing(driver: Driver) -> None:
    driver.replace("get_supported_operations" + SUFFIX[driver.version], lambda _model: (0, [True]))
    answers = driver.device.explain_operations(add_model())
    assert [answer.supported for answer in answers] == [False, False]
    assert "answered for 1 of 2" in answers[0].reason


def test_what_a_version_does_not_know_is_dropped(driver: Driver) -> None:
    driver.device.prepare_model(add_model(), *MINE, 2**62, None)
    preference, priority = driver.sample.record.preferences[0]
    assert preference == (MINE[0] if driver.version >= V11 else ExecutionPreference.FAST_SINGLE_ANSWER)
    assert priority == (MINE[1] if driver.version >= V13 else Priority.MEDIUM)
    assert driver.sample.record.deadlines_ns == [2**62 if driver.version >= V13 else None]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_launch_that_fails_counts_without_a_callback(driver: Driver, failure: ErrorStatus) -> None:
    driver.replace(driver.prepared_method(), lambda *_arguments: failure)
    assert status_of(driver.prepare) == failure


@pytest.mark.parametrize("failure", FAILURES)
def test_a_preparation_that_fails_later(driver: Driver, failure: ErrorStatus) -> None:
    driver.sample.script.prepare = failure
    assert status_of(driver.prepare) == failure


def test_success_without_a_prepared_model_is_a_failure(driver: Driver) -> None:
    def prepare(*arguments: object) -> int:
        arguments[-1].notify(0, None)  # type: ignore[attr-defined]
        return 0

    driver.replace(driver.prepared_method(), prepare)
    assert status_of(driver.prepare) == ErrorStatus.GENERAL_FAILURE


@pytest.mark.parametrize(("error", "status"), TRANSPORT)
def test_preparing_over_a_broken_transport(driver: Driver, error: Exception, status: ErrorStatus) -> None:
    driver.replace(driver.prepared_method(), raising(error))
    assert status_of(driver.prepare) == status


class Mortal(Driver):
    """A driver whose service may die while something is awaited."""

    def __init__(self, version: FeatureLevel) -> None:
        super().__init__(version)
        self.recipients: list[Callable[[], None]] = []
        self.served.link_to_death = self.recipients.append  # type: ignore[attr-defined]
        self.served.unlink_to_death = self.recipients.remove  # type: ignore[attr-defined]
        self.device = adapt(self.served, "old")

    def die_soon(self, *_arguments: object) -> int:
        threading.Timer(0.05, lambda: [recipient() for recipient in self.recipients]).start()
        return 0


@pytest.mark.parametrize("version", VERSIONS)
def test_death_wakes_who_waits_for_a_preparation(version: FeatureLevel) -> None:
    driver = Mortal(version)
    driver.replace(driver.prepared_method(), driver.die_soon)
    assert status_of(driver.prepare) == ErrorStatus.DEAD_OBJECT


@pytest.mark.parametrize("version", [V10, V11])
def test_death_wakes_who_waits_for_an_execution(version: FeatureLevel) -> None:
    driver = Mortal(version)
    prepared = driver.prepare()
    driver.replace("execute", driver.die_soon, prepared._driver)
    inputs, output = arrays()
    assert status_of(lambda: prepared.execute_synchronously(request(inputs, [output]), False, None, None)) == (
        ErrorStatus.DEAD_OBJECT
    )


@pytest.mark.parametrize("version", [V12, V13])
def test_death_wakes_who_waits_for_a_burst(version: FeatureLevel) -> None:
    driver = Mortal(version)
    prepared = driver.prepare()
    silent = SimpleNamespace(free_memory=lambda _slot: None, close=lambda: None)
    driver.replace("configure_execution_burst", lambda *_arguments: (0, silent), prepared._driver)
    burst = prepared.configure_execution_burst()
    inputs, output = arrays()
    driver.die_soon()
    assert status_of(lambda: burst.execute(request(inputs, [output]), False, None, None)) == ErrorStatus.DEAD_OBJECT
    burst.close()


def test_executions(driver: Driver) -> None:
    prepared = driver.prepare()
    driver.sample.script.timing = Timing(5_000, 7_000)
    inputs, output = arrays()
    once = request(inputs, [output])
    for _ in range(2):
        output[:] = -1
        result = prepared.execute_synchronously(once, True, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        assert result.timing == (Timing(5_000, 7_000) if driver.version >= V12 else Timing())
    sent = driver.sample.record.requests[-1]
    assert all(argument.location.pointer is None for argument in (*sent.inputs, *sent.outputs))
    prepared.close()


@pytest.mark.parametrize("failure", FAILURES)
def test_executions_that_fail(driver: Driver, failure: ErrorStatus) -> None:
    prepared = driver.prepare()
    driver.sample.script.execute = failure
    inputs, output = arrays()
    assert status_of(lambda: prepared.execute_synchronously(request(inputs, [output]), True, None, None)) == failure


@pytest.mark.parametrize(("error", "status"), TRANSPORT)
def test_executing_over_a_broken_transport(driver: Driver, error: Exception, status: ErrorStatus) -> None:
    prepared = driver.prepare()
    names = {V10: "execute", V11: "execute", V12: "execute_synchronously", V13: "execute_synchronously_1_3"}
    driver.replace(names[driver.version], raising(error), prepared._driver)
    inputs, output = arrays()
    once = request(inputs, [output])
    for _ in range(2):
        assert status_of(lambda: prepared.execute_synchronously(once, False, None, None)) == status


@pytest.mark.parametrize("version", [V10, V11])
def test_an_execution_whose_launch_fails(version: FeatureLevel) -> None:
    driver = Driver(version)
    prepared = driver.prepare()
    driver.replace("execute", lambda *_arguments: int(ErrorStatus.INVALID_ARGUMENT), prepared._driver)
    inputs, output = arrays()
    assert status_of(lambda: prepared.execute_synchronously(request(inputs, [output]), False, None, None)) == (
        ErrorStatus.INVALID_ARGUMENT
    )


def test_sizes_of_results(driver: Driver) -> None:
    prepared = driver.prepare((0, 2))
    inputs, output = arrays()
    short = np.zeros((1, 2), np.float32)
    if driver.version < V12:
        for target in (output, short):
            call = request(inputs, [target])
            assert status_of(lambda call=call: prepared.execute_synchronously(call, False, None, None)) == (
                ErrorStatus.INVALID_ARGUMENT
            )
        known = Request(tuple(map(pointer, inputs)), (pointer(output, (2, 2)),))
        prepared.execute_synchronously(known, False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])
        return
    assert prepared.execute_synchronously(request(inputs, [output]), False, None, None).output_shapes == (
        OutputShape((2, 2)),
    )
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(request(inputs, [short]), False, None, None)
    assert caught.value.output_shapes == (OutputShape((2, 2), False),)


@pytest.mark.parametrize("version", [V12, V13])
def test_replies_are_filtered(version: FeatureLevel) -> None:
    """Shapes go only with insufficient size, times only with success; a number that is no status is a failure."""
    driver = Driver(version)
    prepared = driver.prepare()
    name = "execute_synchronously" + ("_1_3" if version == V13 else "")
    inputs, output = arrays()
    shapes, timing = (OutputShape((2, 2), False),), v1_2.Timing(1, 2)
    for status, wanted, kept in (
        (2, ErrorStatus.GENERAL_FAILURE, ()),
        (3, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes),
        (77, ErrorStatus.GENERAL_FAILURE, ()),
    ):
        driver.replace(name, lambda *_arguments, status=status: (status, shapes, timing), prepared._driver)
        with pytest.raises(HalError) as caught:
            prepared.execute_synchronously(request(inputs, [output]), True, None, None)
        assert (caught.value.status, caught.value.output_shapes) == (wanted, kept)
    late = v1_2.Timing(v1_2.UNKNOWN_TIME - 1, v1_2.UNKNOWN_TIME)
    driver.replace(name, lambda *_arguments: (0, (), late), prepared._driver)
    result = prepared.execute_synchronously(request(inputs, [output]), True, None, None)
    assert result == ExecutionResult((), Timing(UNKNOWN_DURATION - 1, UNKNOWN_DURATION))


def test_a_request_with_tokens_needs_1_3(driver: Driver) -> None:
    prepared = driver.prepare()
    inputs, output = arrays()
    tokens = Request(
        (RequestArgument(location=DataLocation(0)), pointer(inputs[1])), (pointer(output),), (BufferToken(5),)
    )
    status = status_of(lambda: prepared.execute_synchronously(tokens, False, None, None))
    assert status == ErrorStatus.INVALID_ARGUMENT


def test_fences(driver: Driver) -> None:
    """Before 1.3 they are waited for on the spot; failures of waited ones and bad requests are told."""
    prepared = driver.prepare()
    inputs, output = arrays()
    once = request(inputs, [output])
    done, failed = Fence(), Fence()
    done.signal()
    failed.signal(False)
    fence, callback = prepared.execute_fenced(once, [done.fd], False, None, None, None)
    assert fence is None or wait(fence, 5) == FenceStatus.SIGNALLED
    assert callback.get_execution_info() == (Timing(), Timing())
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    assert status_of(lambda: prepared.execute_fenced(once, [-1], False, None, None, None)) == (
        ErrorStatus.INVALID_ARGUMENT
    )
    assert status_of(lambda: prepared.execute_fenced(once, [failed.fd], False, None, None, None)) == (
        ErrorStatus.GENERAL_FAILURE
    )
    dynamic = driver.prepare((0, 2))
    assert status_of(lambda: dynamic.execute_fenced(once, [], False, None, None, None)) == ErrorStatus.INVALID_ARGUMENT


def test_fences_of_a_driver_of_1_3() -> None:
    driver = Driver(V13)
    driver.sample.script.asynchronous_fences = True
    prepared = driver.prepare()
    pool = SharedMemory.create(192)
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    shared = Request(tuple(arguments[:2]), tuple(arguments[2:]), (pool,))
    first = Fence()
    fence, callback = prepared.execute_fenced(shared, [first.fd], False, None, None, None)
    assert fence is not None
    assert status_of(callback.get_execution_info) == ErrorStatus.GENERAL_FAILURE
    first.signal()
    assert wait(fence, 5) == FenceStatus.SIGNALLED
    assert callback.get_execution_info() == (Timing(), Timing())
    close(fence)
    driver.replace("execute_fenced", lambda *_arguments: (0, None, None), prepared._driver)
    assert status_of(lambda: prepared.execute_fenced(shared, [], False, None, None, None)) == (
        ErrorStatus.GENERAL_FAILURE
    )
    inputs, output = arrays()
    driver.replace("execute_fenced", lambda *_arguments: (4, None, None), prepared._driver)
    assert status_of(lambda: prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)) == (
        ErrorStatus.INVALID_ARGUMENT
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_fenced_executions_of_arrays_on_1_3(asynchronous: bool) -> None:
    driver = Driver(V13)
    driver.sample.script.asynchronous_fences = asynchronous
    prepared = driver.prepare()
    inputs, output = arrays()
    fence, _ = prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
    assert fence is None
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])


@pytest.mark.parametrize("succeeded", [False, True])
def test_the_fence_of_an_execution_of_arrays_is_closed(succeeded: bool) -> None:
    driver = Driver(V13)
    prepared = driver.prepare()
    given: list[int] = []

    def execute_fenced(*_arguments: object) -> tuple[int, int, object]:
        fence = Fence()
        given.append(fence.duplicate())
        fence.signal(succeeded)
        return 0, given[-1], SimpleNamespace()

    driver.replace("execute_fenced", execute_fenced, prepared._driver)
    inputs, output = arrays()
    with contextlib.suppress(HalError):
        prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given[0])


@pytest.mark.parametrize("version", [V12, V13])
def test_caches(version: FeatureLevel, tmp_path: Path) -> None:
    driver = Driver(version)
    driver.sample.script.cache_files = (1, 1)
    files = tuple(os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2))
    cache = CacheRequest(files[:1], files[1:], bytes(32))
    assert status_of(lambda: driver.device.prepare_model_from_cache(None, cache)) == ErrorStatus.GENERAL_FAILURE
    driver.device.prepare_model(add_model(), *MINE, None, cache)
    prepared = driver.device.prepare_model_from_cache(None, cache)
    inputs, output = arrays()
    prepared.execute_synchronously(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    name = "prepare_model_from_cache" + ("_1_3" if version == V13 else "")
    for error, status in TRANSPORT:
        driver.replace(name, raising(error))
        assert status_of(lambda: driver.device.prepare_model_from_cache(None, cache)) == status
    for fd in files:
        os.close(fd)


def test_before_1_2_there_are_no_caches(driver: Driver) -> None:
    if driver.version >= V12:
        return
    cache = CacheRequest((), (), bytes(32))
    assert status_of(lambda: driver.device.prepare_model_from_cache(None, cache)) == ErrorStatus.GENERAL_FAILURE


def test_memory_domains_need_1_3(driver: Driver) -> None:
    prepared = driver.prepare()
    roles = [BufferRole(0, 0, 1.0)]
    if driver.version < V13:
        status = status_of(lambda: driver.device.allocate(BufferDesc(), [prepared], roles, []))
        assert status == ErrorStatus.GENERAL_FAILURE
        return
    buffer, token = driver.device.allocate(BufferDesc(), [prepared], roles, [])
    pool = SharedMemory.create(16)
    assert status_of(lambda: buffer.copy_to(pool)) == ErrorStatus.GENERAL_FAILURE
    pool.array().view(np.float32)[:] = 3
    buffer.copy_from(pool, ())
    inputs, output = arrays()
    tokens = Request(
        (RequestArgument(location=DataLocation(0)), pointer(inputs[1])), (pointer(output),), (BufferToken(token),)
    )
    prepared.execute_synchronously(tokens, False, None, None)
    np.testing.assert_array_equal(output, inputs[1] + 3)
    buffer.copy_to(pool)
    buffer.close()
    assert status_of(lambda: buffer.copy_to(pool)) == ErrorStatus.INVALID_ARGUMENT
    foreign = Driver(V12).prepare()
    assert status_of(lambda: driver.device.allocate(BufferDesc(), [foreign], roles, [])) == ErrorStatus.INVALID_ARGUMENT
    for reply in ((0, None, 1), (0, buffer, 0), (2, None, 0)):
        driver.replace("allocate", lambda *_arguments, reply=reply: reply)
        status = status_of(lambda: driver.device.allocate(BufferDesc(), [prepared], roles, []))
        assert status == ErrorStatus.GENERAL_FAILURE
    for error, wanted in TRANSPORT:
        driver.replace("allocate", raising(error))
        assert status_of(lambda: driver.device.allocate(BufferDesc(), [prepared], roles, [])) == wanted


def test_a_second_notification_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    callback = ExecutionCallback()
    callback.notify(0)
    callback.notify_1_2(2, (), v1_2.Timing())
    callback.notify_1_3(2, (), v1_2.Timing())
    assert callback.wait() == ((), Timing())
    assert caplog.text.count("notified a callback twice") == 2
    prepared = PreparedModelCallback()
    prepared.notify_1_2(2, None)
    prepared.notify_1_3(0, None)
    prepared.notify_as_dead()
    assert status_of(prepared.wait) == ErrorStatus.GENERAL_FAILURE


class Notified:
    """A client's callback that counts."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.done = threading.Event()

    def notify(self, *values: object) -> None:
        self.calls.append(values)
        self.done.set()

    notify_1_2 = notify_1_3 = notify


def test_the_drivers_side_notifies_exactly_once(driver: Driver) -> None:
    """On bad input at once with the status that is returned; on good input when it is done."""
    method = getattr(driver.served, driver.prepared_method())
    extra: dict[FeatureLevel, tuple[object, ...]] = {
        V10: (),
        V11: (MINE[0],),
        V12: (MINE[0], (), (), bytes(32)),
        V13: (*MINE, None, (), (), bytes(32)),
    }
    good = convert_to(add_model(), driver.version)
    graph = good.main if hasattr(good, "main") else good
    broken = replace(graph, output_indexes=())
    bad = replace(good, main=broken) if hasattr(good, "main") else broken
    refused = Notified()
    assert method(bad, *extra[driver.version], refused) == ErrorStatus.INVALID_ARGUMENT
    assert refused.calls == [(ErrorStatus.INVALID_ARGUMENT, None)]
    taken = Notified()
    assert method(good, *extra[driver.version], taken) == ErrorStatus.NONE
    assert taken.done.wait(10)
    assert taken.calls[0][0] == ErrorStatus.NONE
    if driver.version >= V11:
        odd = Notified()
        wrong = (5, *extra[driver.version][1:])
        assert method(good, *wrong, odd) == ErrorStatus.INVALID_ARGUMENT
        assert odd.calls == [(ErrorStatus.INVALID_ARGUMENT, None)]


def test_the_drivers_side_refuses_newer_models(driver: Driver) -> None:
    model = add_model((2, 2))
    from dataclasses import replace

    from nn_runtime.hal.versions import convert_to

    if driver.version < V12:
        relaxed = convert_to(model, driver.version)
        newer = replace(
            relaxed, operations=tuple(replace(o, type=38) if o.type == 19 else o for o in relaxed.operations)
        )  # type: ignore[union-attr]
        status, _ = getattr(driver.served, "get_supported_operations" + SUFFIX[driver.version])(newer)
        assert status == ErrorStatus.INVALID_ARGUMENT


def test_asynchronous_executions_of_the_drivers_side(driver: Driver) -> None:
    prepared = driver.prepare()._driver
    pool = SharedMemory.create(192)
    arguments = [RequestArgument(location=DataLocation(0, offset, 16)) for offset in (0, 64, 128)]
    shared = Request(tuple(arguments[:2]), tuple(arguments[2:]), (pool,))
    names = {"execute": ()}
    if driver.version >= V12:
        names["execute_1_2"] = (v1_2.MeasureTiming.NO,)  # type: ignore[assignment]
    if driver.version >= V13:
        names["execute_1_3"] = (v1_2.MeasureTiming.NO, None, None)  # type: ignore[assignment]
    for name, extra in names.items():
        callback = Notified()
        assert getattr(prepared, name)(shared, *extra, callback) == ErrorStatus.NONE
        assert callback.done.wait(10)
        assert callback.calls[0][0] == ErrorStatus.NONE
        driver.sample.script.crash = KeyError("lost")
        failing = Notified()
        assert getattr(prepared, name)(shared, *extra, failing) == ErrorStatus.NONE
        assert failing.done.wait(10)
        assert failing.calls[0][0] == ErrorStatus.GENERAL_FAILURE
        driver.sample.script.crash = None


def test_prepared_models_of_lesser_versions_are_taken_as_they_are() -> None:
    """A driver of 1.3 may hand out a prepared model of 1.0: it is executed as that."""
    driver = Driver(V13)
    inner = Driver(V10).prepare()._driver

    def prepare(*arguments: object) -> int:
        arguments[-1].notify_1_3(0, inner)  # type: ignore[attr-defined]
        return 0

    driver.replace("prepare_model_1_3", prepare)
    prepared = driver.prepare()
    inputs, output = arrays()
    prepared.execute_synchronously(request(inputs, [output]), False, None, None)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])


def test_a_name_and_a_driver_are_needed(driver: Driver) -> None:
    assert status_of(lambda: adapt(driver.served, "")) == ErrorStatus.INVALID_ARGUMENT
    assert status_of(lambda: adapt(None, "old")) == ErrorStatus.INVALID_ARGUMENT  # type: ignore[arg-type]


LINKING = (*TRANSPORT, (HalError(ErrorStatus.GENERAL_FAILURE, "no such link"), ErrorStatus.GENERAL_FAILURE))


@pytest.mark.parametrize(("error", "status"), LINKING)
def test_a_device_that_cannot_be_watched(driver: Driver, error: Exception, status: ErrorStatus) -> None:
    driver.replace("link_to_death", raising(error))
    driver.replace("unlink_to_death", raising(error))
    assert status_of(lambda: adapt(driver.served, "old")) == status


@pytest.mark.parametrize(("error", "status"), LINKING)
def test_a_prepared_model_that_cannot_be_watched(driver: Driver, error: Exception, status: ErrorStatus) -> None:
    inner = driver.prepare()._driver
    driver.replace("link_to_death", raising(error), inner)
    driver.replace("unlink_to_death", raising(error), inner)

    def prepare(*arguments: object) -> int:
        arguments[-1].notify(0, inner)  # type: ignore[attr-defined]
        return 0

    driver.replace(driver.prepared_method(), prepare)
    assert status_of(driver.prepare) == status


@pytest.mark.parametrize("version", [V12, V13])
def test_asynchronous_executions(version: FeatureLevel) -> None:
    """By callback: success, launch error, returned error, broken transport, dead service, death while waiting."""
    driver = Mortal(version)
    driver.device = adapt(driver.served, "old", synchronous=False)
    driver.sample.script.timing = Timing(5_000, 7_000)
    prepared = driver.prepare()
    inputs, output = arrays()
    once = request(inputs, [output])

    def execute() -> ExecutionResult:
        return prepared.execute_synchronously(once, True, None, None)

    assert execute().timing == Timing(5_000, 7_000)
    np.testing.assert_array_equal(output, inputs[0] + inputs[1])
    for failure in FAILURES:
        driver.sample.script.execute = failure
        assert status_of(execute) == failure
    driver.sample.script.execute = None
    name = "execute" + SUFFIX[version]
    good = getattr(prepared._driver, name)
    replies: list[tuple[Callable[..., object], ErrorStatus]]
    replies = [((lambda *_arguments, failure=failure: int(failure)), failure) for failure in FAILURES[:3]]
    replies += [(raising(error), status) for error, status in TRANSPORT]
    replies.append((driver.die_soon, ErrorStatus.DEAD_OBJECT))
    for reply, status in replies:
        driver.replace(name, reply, prepared._driver)
        assert status_of(execute) == status
    driver.replace(name, good, prepared._driver)
    assert status_of(execute) == ErrorStatus.DEAD_OBJECT  # the service has died


def test_the_same_request_again_after_every_failure(driver: Driver) -> None:
    prepared = driver.prepare()
    inputs, output = arrays()
    once = request(inputs, [output])
    for failure in FAILURES:
        driver.sample.script.execute = failure
        assert status_of(lambda: prepared.execute_synchronously(once, False, None, None)) == failure
        assert status_of(lambda: prepared.execute_fenced(once, [], False, None, None, None)) == failure
        driver.sample.script.execute = None
        output[:] = 0
        prepared.execute_synchronously(once, False, None, None)
        np.testing.assert_array_equal(output, inputs[0] + inputs[1])


@pytest.mark.parametrize(("error", "status"), TRANSPORT)
def test_fences_over_a_broken_transport(error: Exception, status: ErrorStatus) -> None:
    driver = Driver(V13)
    prepared = driver.prepare()
    inputs, output = arrays()
    driver.replace("execute_fenced", raising(error), prepared._driver)
    for _ in range(2):
        found = status_of(lambda: prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None))
        assert found == status


@pytest.mark.parametrize("version", [V12, V13])
def test_bursts_that_the_driver_does_not_open(version: FeatureLevel) -> None:
    driver = Driver(version)
    prepared = driver.prepare()
    for failure in FAILURES[:3]:
        driver.replace("configure_execution_burst", lambda *_a, failure=failure: (int(failure), None), prepared._driver)
        assert status_of(prepared.configure_execution_burst) == failure
    driver.replace("configure_execution_burst", lambda *_arguments: (0, None), prepared._driver)
    assert status_of(prepared.configure_execution_burst) == ErrorStatus.GENERAL_FAILURE
    for error, status in TRANSPORT:
        driver.replace("configure_execution_burst", raising(error), prepared._driver)
        assert status_of(prepared.configure_execution_burst) == status


def test_buffers_that_fail() -> None:
    driver = Driver(V13)
    prepared = driver.prepare()
    buffer, _ = driver.device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
    inner = buffer._driver  # type: ignore[attr-defined]
    pool = SharedMemory.create(16)
    calls = {"copy_to": lambda: buffer.copy_to(pool), "copy_from": lambda: buffer.copy_from(pool, ())}
    for name, call in calls.items():
        for failure in FAILURES[:3]:
            driver.replace(name, lambda *_arguments, failure=failure: int(failure), inner)
            assert status_of(call) == failure
        for error, status in TRANSPORT:
            driver.replace(name, raising(error), inner)
            assert status_of(call) == status


@pytest.mark.parametrize("version", [V12, V13])
def test_preparing_from_cache_that_fails(version: FeatureLevel) -> None:
    driver = Mortal(version)
    name = "prepare_model_from_cache" + ("_1_3" if version == V13 else "")
    cache = CacheRequest((), (), bytes(32))

    def prepare() -> object:
        return driver.device.prepare_model_from_cache(None, cache)

    def notifying(status: int) -> Callable[..., object]:
        def call(*arguments: object) -> int:
            arguments[-1].notify(status, None)  # type: ignore[attr-defined]
            return 0

        return call

    replies: list[tuple[Callable[..., object], ErrorStatus]] = [(notifying(0), ErrorStatus.GENERAL_FAILURE)]
    for failure in FAILURES[:3]:
        replies.append((notifying(failure), failure))
        replies.append(((lambda *_arguments, failure=failure: int(failure)), failure))
    replies += [(raising(error), status) for error, status in TRANSPORT]
    replies.append((driver.die_soon, ErrorStatus.DEAD_OBJECT))
    for reply, status in replies:
        driver.replace(name, reply)
        assert status_of(prepare) == status
