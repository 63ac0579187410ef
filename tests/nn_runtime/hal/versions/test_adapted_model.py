# SPDX-License-Identifier: Apache-2.0
"""Models that drivers of every version have prepared (AOSP: unit tests of the HAL utils, 1.0 to 1.3)."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.hal.fences import Fence, FenceStatus, close, wait
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionResult,
    HalError,
    OutputShape,
    Request,
    RequestArgument,
    Timing,
)
from nn_runtime.hal.versions import adapt, v1_2
from tests.nn_runtime.hal.models import pointer, request
from tests.nn_runtime.hal.versions.adapted_driver import (
    FAILURES,
    SUFFIX,
    TRANSPORT,
    V10,
    V11,
    V12,
    V13,
    Driver,
    Mortal,
    arrays,
    raising,
    status_of,
)
from tests.nn_runtime.hal.versions.test_adapter import LINKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.codes import FeatureLevel


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


def test_a_fence_that_fails_tells_the_drivers_error_for_arrays_too() -> None:
    driver = Driver(V13)
    driver.sample.script.asynchronous_fences = True
    driver.sample.script.execute = ErrorStatus.MISSED_DEADLINE_TRANSIENT
    inputs, output = arrays()
    prepared = driver.prepare()
    assert status_of(lambda: prepared.execute_fenced(request(inputs, [output]), [], False, None, None, None)) == (
        ErrorStatus.MISSED_DEADLINE_TRANSIENT
    )
