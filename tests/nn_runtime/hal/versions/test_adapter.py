# SPDX-License-Identifier: Apache-2.0
"""Drivers of every version as canonical devices (AOSP: unit tests of the HAL utils, 1.0 to 1.3)."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import DeviceTypeCode, FeatureLevel
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    DeviceStatus,
    ErrorStatus,
    ExecutionPreference,
    Extension,
    HalError,
    Priority,
    Request,
    RequestArgument,
    Timing,
)
from nn_runtime.hal.versions import adapt, convert_to, v1_2
from nn_runtime.hal.versions.adapter import AdaptedDevice
from nn_runtime.hal.versions.callbacks import ExecutionCallback, PreparedModelCallback
from tests.nn_runtime.hal.models import add_model, pointer, request
from tests.nn_runtime.hal.versions.adapted_driver import (
    FAILURES,
    MINE,
    SUFFIX,
    TRANSPORT,
    V10,
    V11,
    V12,
    V13,
    VERSIONS,
    Driver,
    Mortal,
    arrays,
    raising,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


@pytest.mark.parametrize("version", VERSIONS)
def test_death_wakes_who_waits_for_a_preparation(version: FeatureLevel) -> None:
    driver = Mortal(version)
    driver.replace(driver.prepared_method(), driver.die_soon)
    assert status_of(driver.prepare) == ErrorStatus.DEAD_OBJECT


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
