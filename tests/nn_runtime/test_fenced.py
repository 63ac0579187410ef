# SPDX-License-Identifier: Apache-2.0
"""Fenced executions: what they start with, wait for and tell.

AOSP TestValidation fenced groups, TestExecution, TestTrivialModel, TestIntrospectionControl TimingTest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import DurationCode, OperationCode
from nn_runtime.errors import BadData, BadState, MissedDeadline, OperationFailed, UnavailableDevice, UnexpectedNull
from nn_runtime.event import Event
from nn_runtime.execution import Execution
from nn_runtime.hal.fences import Fence
from nn_runtime.hal.types import ErrorStatus, Timing
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.fencing import bound, fenced_device, join_threads, relu
from tests.nn_runtime.graphs import add_model, chain_model, finished, if_model, numbers, tensor, unary_model
from tests.nn_runtime.memories import memory_between, one_after_the_other

if TYPE_CHECKING:
    from nn_runtime.operand import Array

RELU, TANH, LOGISTIC = OperationCode.RELU, OperationCode.TANH, OperationCode.LOGISTIC


def test_null_arguments_come_first() -> None:
    execution, _ = bound(relu())
    with pytest.raises(UnexpectedNull):
        execution.start_compute_with_dependencies(None)  # type: ignore[arg-type]
    with pytest.raises(UnexpectedNull):
        execution.start_compute_with_dependencies([None], -1)  # type: ignore[list-item]


def test_a_duration_needs_one_explicit_device() -> None:
    for compilation in (relu(fallback=True), relu([fenced_device("a"), fenced_device("b")])):
        execution, _ = bound(compilation)
        with pytest.raises(BadData, match="exactly one device"):
            execution.start_compute_with_dependencies([], 10**9)
        with pytest.raises(BadState, match="not reusable"):  # as Android has it: the state comes first, and is used up
            execution.start_compute_with_dependencies([], 10**9)
    device = fenced_device()
    execution, _ = bound(relu([device]))
    execution.start_compute_with_dependencies([], 10**10).wait()
    assert device.record.fenced == [(0, 10**10)]


def test_outputs_must_be_specified() -> None:
    execution = Execution(finished(chain_model([RELU], (0, 3)), [fenced_device()]))
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, np.zeros(6, np.float32))
    with pytest.raises(BadData, match="output 0: a fenced execution needs its dimensions"):
        execution.start_compute_with_dependencies([])
    execution = Execution(finished(chain_model([RELU], (0, 3)), [fenced_device()]))
    output = np.zeros(6, np.float32)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, output, tensor(2, 3))
    execution.start_compute_with_dependencies([]).wait()
    np.testing.assert_array_equal(output.reshape(2, 3), np.maximum(numbers(2, 3), 0))
    assert execution.get_output_operand_dimensions(0) == (2, 3)


def test_an_unbound_argument_ends_the_execution() -> None:
    execution = Execution(finished(add_model(), [fenced_device()]))
    with pytest.raises(BadData, match="input 0 is not bound"):
        execution.start_compute_with_dependencies([])
    with pytest.raises(BadState):
        execution.start_compute_with_dependencies([])


def test_an_execution_starts_after_its_fences() -> None:
    device = fenced_device()
    fence = Fence()
    execution, output = bound(relu([device]))
    event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(fence.fd)])
    with pytest.raises(MissedDeadline):
        event.wait(0.01)
    assert np.isnan(output).all()
    assert not device.record.requests
    for call in (execution.compute, execution.start_compute, lambda: execution.start_compute_with_dependencies([])):
        with pytest.raises(BadState, match="is computing"):
            call()
    with pytest.raises(BadState, match="not completed"):
        execution.get_output_operand_dimensions(0)
    fence.signal()
    event.wait()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    with pytest.raises(BadState, match="not reusable"):
        execution.start_compute_with_dependencies([])
    fence.close()


def test_executions_chain_across_devices() -> None:
    """Each reads what the one before writes; nothing is waited for between."""
    gate = Fence()
    devices = [fenced_device("one"), fenced_device("two"), SampleDevice("at_once")]
    x, results = numbers(2, 3), [np.zeros((2, 3), np.float32) for _ in devices]
    events: list[Event] = [Event.from_sync_fence_fd(gate.fd)]
    threading.Timer(0.02, gate.signal).start()
    for device, code, source, result in zip(devices, (RELU, TANH, RELU), [x, *results], results, strict=False):
        execution = Execution(finished(chain_model([code]), [device]))
        execution.set_input(0, source)
        execution.set_output(0, result)
        events.append(execution.start_compute_with_dependencies(events[-1:]))
    events[-1].wait()
    np.testing.assert_allclose(results[-1], np.tanh(np.maximum(x, 0)), rtol=1e-6)
    for event in events:
        event.close()
    gate.close()


def test_events_without_fence_are_waited_for_on_the_spot() -> None:
    first, between = bound(relu([SampleDevice("plain")]))
    device = fenced_device()
    second, output = bound(finished(chain_model([TANH]), [device]), between)
    second.start_compute_with_dependencies([first.start_compute()]).wait()
    assert device.record.fenced == [(0, None)]
    np.testing.assert_allclose(output, np.tanh(np.maximum(numbers(2, 3), 0)), rtol=1e-6)


def test_a_failed_event_without_fence_only_ends_the_wait() -> None:
    failing = SampleDevice("failing")
    first, _ = bound(relu([failing]))
    failing.script.execute = ErrorStatus.GENERAL_FAILURE
    second, output = bound(relu())
    second.start_compute_with_dependencies([first.start_compute()]).wait()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_steps_of_a_plan_wait_for_each_other(asynchronous: bool) -> None:
    devices = [fenced_device("rest", {RELU, LOGISTIC}), fenced_device("tanh", {TANH})]
    for device in devices:
        device.script.asynchronous_fences = asynchronous
    gate = Fence()
    execution, output = bound(finished(chain_model([RELU, TANH, LOGISTIC]), devices))
    threading.Timer(0.02, gate.signal).start()
    event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    event.wait()
    np.testing.assert_allclose(output, 1 / (1 + np.exp(-np.tanh(np.maximum(numbers(2, 3), 0)))), rtol=1e-6)
    assert [len(device.record.fenced) for device in devices] == [2, 1]
    waited = [count for device in devices for count, _ in device.record.fenced]
    assert waited == ([1, 1, 1] if asynchronous else [1, 0, 0])
    event.close()
    gate.close()


def test_interpreted_control_flow_waits_for_its_condition() -> None:
    device = fenced_device("sample", {RELU, TANH})
    compilation = finished(if_model(unary_model(RELU), unary_model(TANH)), [device], fallback=True)
    gate, condition, output = Fence(), np.array([False]), np.zeros((2, 3), np.float32)
    execution = Execution(compilation)
    execution.set_input(0, condition)
    execution.set_input(1, numbers(2, 3))
    execution.set_output(0, output)

    def decide() -> None:
        condition[0] = True
        gate.signal()

    threading.Timer(0.02, decide).start()
    execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)]).wait()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    gate.close()


def of_unknown_temporary(devices: list[SampleDevice]) -> tuple[Execution, Array]:
    return bound(finished(chain_model([RELU, TANH], inner_dims=(0, 3)), devices))


def test_temporaries_of_unknown_size_run_as_a_plain_execution() -> None:
    """AOSP's fallback to startCompute: after the fences, and whatever the duration."""
    devices = [fenced_device("relu", {RELU}), fenced_device("tanh", {TANH})]
    execution, output = of_unknown_temporary(devices)
    gate = Fence()
    threading.Timer(0.02, gate.signal).start()
    event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)], 10**9)
    event.wait()
    with pytest.raises(BadData, match="no sync fence"):
        event.sync_fence_fd()
    assert not devices[0].record.fenced
    np.testing.assert_allclose(output, np.tanh(np.maximum(numbers(2, 3), 0)), rtol=1e-6)
    gate.close()


def test_temporaries_and_outputs_of_unknown_size_run_as_a_plain_execution() -> None:
    devices = [fenced_device("relu", {RELU}), fenced_device("tanh", {TANH})]
    model = chain_model([RELU, TANH], (0, 3), inner_dims=(0, 3))
    execution, output = Execution(finished(model, devices)), np.zeros(6, np.float32)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, output)
    execution.start_compute_with_dependencies([]).wait()
    assert execution.get_output_operand_dimensions(0) == (2, 3)
    np.testing.assert_allclose(output.reshape(2, 3), np.tanh(np.maximum(numbers(2, 3), 0)), rtol=1e-6)


def test_a_failed_fence_before_a_plain_execution_starts_nothing() -> None:
    devices = [fenced_device("relu", {RELU}), fenced_device("tanh", {TANH})]
    execution, output = of_unknown_temporary(devices)
    gate = Fence()
    gate.signal(False)
    with pytest.raises(OperationFailed, match="was waited for signalled an error"):
        execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    assert np.isnan(output).all()
    execution.compute()  # not started before
    gate.close()


@pytest.mark.parametrize("codes", [[RELU], [RELU, TANH]])
@pytest.mark.parametrize("status", [ErrorStatus.GENERAL_FAILURE, ErrorStatus.DEVICE_UNAVAILABLE])
def test_a_failing_launch_goes_to_the_cpu_where_allowed(codes: list[OperationCode], status: ErrorStatus) -> None:
    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    for fallback in (True, False):
        compilation = finished(chain_model(codes), devices, fallback)
        for device in devices:
            device.script.execute = status
        gate = Fence()
        threading.Timer(0.01, gate.signal).start()
        execution, output = bound(compilation)
        depends = [Event.from_sync_fence_fd(gate.fd)]
        if not fallback:
            wanted_error = OperationFailed if status == ErrorStatus.GENERAL_FAILURE else UnavailableDevice
            with pytest.raises(wanted_error) as caught:
                execution.start_compute_with_dependencies(depends)
            assert caught.value.__cause__ is not caught.value
            with pytest.raises(BadState, match="not reusable"):
                execution.compute()
            continue
        event = execution.start_compute_with_dependencies(depends)
        with pytest.raises(BadData, match="no sync fence"):
            event.sync_fence_fd()
        event.wait()
        wanted = np.maximum(numbers(2, 3), 0)
        np.testing.assert_allclose(output, wanted if len(codes) == 1 else np.tanh(wanted), rtol=1e-6)


def test_a_failing_launch_waits_for_the_step_under_way() -> None:
    """Or it would write into the application's memory after the failure was reported."""
    devices = [fenced_device("relu", {RELU}), SampleDevice("tanh", {TANH})]
    devices[1].script.execute = ErrorStatus.GENERAL_FAILURE
    gate = Fence()
    execution, _ = bound(finished(chain_model([RELU, TANH]), devices))
    threading.Timer(0.02, gate.signal).start()
    with pytest.raises(OperationFailed, match="tanh: told to fail"):
        execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    assert len(devices[0].record.requests) == 1
    gate.close()


@needs_descriptors
def test_an_interrupted_launch_waits_for_the_step_under_way_and_leaves_no_descriptor() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    devices = [fenced_device("relu", {RELU}), SampleDevice("tanh", {TANH})]
    compilation = finished(chain_model([RELU, TANH]), devices, fallback=True)
    assert compilation.plan is not None
    compilation.plan.steps[1].prepared.execute_fenced = interrupt  # type: ignore[assignment, method-assign]

    def compute(rounds: int) -> None:
        for _ in range(rounds):
            gate = Fence()
            threading.Timer(0.01, gate.signal).start()
            with pytest.raises(KeyboardInterrupt):
                bound(compilation)[0].start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
            assert len(devices[0].record.requests) == 1
            devices[0].record.requests.clear()  # they keep the memory of temporaries
            gate.close()
        join_threads()

    compute(2)
    before = open_descriptors()
    compute(20)
    assert open_descriptors() <= before + 5


@needs_descriptors
def test_fences_between_steps_are_closed() -> None:
    compilation = finished(
        chain_model([RELU, TANH, RELU]), [fenced_device("relu", {RELU}), fenced_device("tanh", {TANH})]
    )

    execution, _ = bound(compilation)
    execution.set_reusable(True)

    def compute(rounds: int) -> None:
        for _ in range(rounds):
            execution.start_compute_with_dependencies([]).close()
        join_threads()

    compute(2)
    before = open_descriptors()
    compute(20)
    assert open_descriptors() <= before + 5  # of 40 between steps


def test_a_fence_that_fails_is_no_reason_for_the_cpu() -> None:
    """The first step is under way when the second cannot be launched: the CPU device still waits for the fence."""
    devices = [fenced_device("relu", {RELU}), SampleDevice("tanh", {TANH})]
    devices[1].script.execute = ErrorStatus.GENERAL_FAILURE
    gate = Fence()
    execution, output = bound(finished(chain_model([RELU, TANH]), devices, fallback=True))
    threading.Timer(0.01, gate.signal, [False]).start()
    with pytest.raises(OperationFailed):
        execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)]).wait()
    assert np.isnan(output).all()
    gate.close()


def test_insufficient_size_of_a_fenced_execution_is_a_failure_of_the_driver() -> None:
    """All sizes are known before it starts, and there is no way to report others."""
    device = fenced_device()
    execution, _ = bound(relu([device]))
    device.script.execute = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    with pytest.raises(OperationFailed, match="all sizes were known before"):
        execution.start_compute_with_dependencies([]).wait()
    with pytest.raises(BadState, match="failed"):
        execution.get_output_operand_dimensions(0)


def test_what_waits_for_a_failed_event_is_refused_and_fails_if_it_fails_later() -> None:
    device, gate = fenced_device(), Fence()
    event = Event.from_sync_fence_fd(gate.fd)
    started, _ = bound(relu([device]))
    fenced = started.start_compute_with_dependencies([event])
    gate.signal(False)
    with pytest.raises(OperationFailed, match="was waited for signalled an error"):
        fenced.wait()
    refused, output = bound(relu([device]))
    with pytest.raises(OperationFailed, match="has failed already"):
        refused.start_compute_with_dependencies([event])
    with pytest.raises(BadState, match="the execution failed"):
        refused.get_output_operand_dimensions(0)
    assert len(device.record.fenced) == 1
    assert np.isnan(output).all()


def test_a_failure_after_the_launch_is_the_events() -> None:
    device = fenced_device()
    execution, _ = bound(relu([device]))
    execution.set_measure_timing(True)
    device.script.execute = ErrorStatus.MISSED_DEADLINE_PERSISTENT
    event = execution.start_compute_with_dependencies([])
    for _ in range(2):
        with pytest.raises(MissedDeadline, match="told to fail"):
            event.wait()
    with pytest.raises(BadState, match="failed"):
        execution.get_duration(DurationCode.FENCED_IN_DRIVER)
    with pytest.raises(BadState, match="failed"):
        execution.get_output_operand_dimensions(0)


def test_a_deadline_or_duration_that_passes() -> None:
    for how in ("timeout", "duration"):
        execution, _ = bound(relu())
        gate = Fence()
        if how == "timeout":
            execution.set_timeout(10**6)
            event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
        else:
            event = execution.start_compute_with_dependencies([], 1)
        with pytest.raises(MissedDeadline):
            event.wait()
        gate.signal()
        gate.close()


def test_a_deadline_in_a_hundred_years() -> None:
    execution, output = bound(relu())
    gate = Fence()
    execution.set_timeout(2**62)
    event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    gate.signal()
    event.wait()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    gate.close()


@pytest.mark.parametrize("timing", [Timing(), Timing(5, 10), Timing(5), Timing(time_in_driver_ns=7)])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_times_of_a_fenced_execution(timing: Timing, asynchronous: bool) -> None:
    device = fenced_device()
    device.script.asynchronous_fences = asynchronous
    device.script.timing = timing
    execution, _ = bound(relu([device]))
    execution.set_measure_timing(True)
    event = execution.start_compute_with_dependencies([])
    for code in DurationCode:
        with pytest.raises(BadState, match="not completed"):
            execution.get_duration(code)
    event.wait()
    unknown = Timing().time_on_device_ns
    for code in DurationCode:
        hardware = code in (DurationCode.ON_HARDWARE, DurationCode.FENCED_ON_HARDWARE)
        wanted = timing.time_on_device_ns if hardware else timing.time_in_driver_ns
        if not asynchronous:
            wanted = unknown  # the CPU never tells
        assert execution.get_duration(code) == (None if wanted == unknown else wanted)


def test_device_memory_between_fenced_executions() -> None:
    compilation = finished(chain_model([RELU]), [SampleDevice("sample")])
    memory = memory_between(compilation)
    output = np.zeros((2, 3), np.float32)
    first, second = one_after_the_other(compilation, memory, output)
    event = first.start_compute_with_dependencies([])
    second.start_compute_with_dependencies([event]).wait()
    event.wait()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
