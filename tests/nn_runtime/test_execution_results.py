# SPDX-License-Identifier: Apache-2.0
"""What comes of an execution: shapes, failures, times (AOSP TestExecution, TestIntrospectionControl)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import DurationCode, FeatureLevel, OperationCode, ResultCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import Device
from nn_runtime.devices import reference_device
from nn_runtime.errors import (
    BadData,
    BadState,
    DeadObject,
    MissedDeadline,
    OperationFailed,
    OutputInsufficientSize,
    ResourceExhausted,
    UnavailableDevice,
)
from nn_runtime.execution import Execution
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, OutputShape, Timing
from nn_runtime.model import Model
from nn_runtime.observe import trace
from nn_runtime.reports import profile_of
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.computing import COMPUTES, bind_all
from tests.nn_runtime.graphs import add, add_model, chain_model, finished, numbers, tensor

if TYPE_CHECKING:
    from pathlib import Path

    from nn_runtime.hal.types import Request


@pytest.fixture
def compilation() -> Compilation:
    compilation = Compilation(add_model((2, 3)), [reference_device()])
    compilation.finish()
    return compilation


@pytest.fixture
def execution(compilation: Compilation) -> Execution:
    return Execution(compilation)


def test_results_are_asked_for_only_after_the_end(execution: Execution) -> None:
    for call in (
        lambda: execution.get_output_operand_rank(0),
        lambda: execution.get_output_operand_dimensions(0),
        lambda: execution.get_duration(DurationCode.IN_DRIVER),
    ):
        with pytest.raises(BadState, match="not completed"):
            call()
    bind_all(execution)
    execution.compute()
    with pytest.raises(BadData, match="output 1 is out of range"):
        execution.get_output_operand_rank(1)
    with pytest.raises(BadData, match="code"):
        execution.get_duration(7)


@pytest.mark.parametrize("dims", [(0, 3), (0, 0), ()])
def test_an_insufficient_output_tells_its_shape(dims: tuple[int, ...]) -> None:
    compilation = Compilation(chain_model([OperationCode.RELU], dims), [reference_device()])
    compilation.finish()
    execution = Execution(compilation)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, np.zeros(5, np.float32))
    with pytest.raises(OutputInsufficientSize) as caught:
        execution.compute()
    assert caught.value.shapes == ((2, 3),)
    assert execution.get_output_operand_dimensions(0) == (2, 3)
    assert execution.get_output_operand_rank(0) == 2


STATUSES = {
    ErrorStatus.DEVICE_UNAVAILABLE: UnavailableDevice,
    ErrorStatus.GENERAL_FAILURE: OperationFailed,
    ErrorStatus.INVALID_ARGUMENT: BadData,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: MissedDeadline,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: MissedDeadline,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResourceExhausted,
    ErrorStatus.DEAD_OBJECT: DeadObject,
}
NO_CODE_OF_THEIR_OWN = (
    ("start_compute", ErrorStatus.DEAD_OBJECT),  # events carry what is in the HAL
    ("start_compute_with_dependencies", ErrorStatus.OUTPUT_INSUFFICIENT_SIZE),  # sizes are known
)
"""Failures of some ways to compute that are told as OP_FAILED."""
LEVELS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)


@pytest.mark.parametrize("reusable", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("status", [None, *STATUSES, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE])
def test_forced_statuses_in_every_way_to_compute(status: ErrorStatus | None, level: int, reusable: bool) -> None:
    """AOSP TestExecution: drivers of every version, Wait and WaitReusable; nothing falls back."""
    device = SampleDevice("forced", feature_level=level)
    compilation = finished(add_model(), [device])
    burst = Burst(compilation)
    device.script.execute = status
    if status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        device.script.output_shapes = (OutputShape((2, 3), False),)
    for kind, compute in COMPUTES.items():
        execution = Execution(compilation)
        execution.set_reusable(reusable)
        bind_all(execution)
        for _ in range(3 if reusable else 1):
            if status is None:
                compute(execution, burst)
                assert execution.get_output_operand_dimensions(0) == (2, 3)
                continue
            wanted = STATUSES.get(status, OutputInsufficientSize)
            if (kind, status) in NO_CODE_OF_THEIR_OWN:
                wanted = OperationFailed
            with pytest.raises(wanted):
                compute(execution, burst)
            if wanted is OutputInsufficientSize:
                assert execution.get_output_operand_dimensions(0) == (2, 3)
            else:
                with pytest.raises(BadState):
                    execution.get_output_operand_dimensions(0)
        if not reusable:
            with pytest.raises(BadState):
                compute(execution, burst)


@pytest.mark.parametrize("status", STATUSES)
def test_a_drivers_status_becomes_the_result(status: ErrorStatus) -> None:
    device = SampleDevice("failing")
    compilation = finished(add_model(), [device])
    device.script.execute = status
    execution = Execution(compilation)
    bind_all(execution)
    with pytest.raises(STATUSES[status], match="failing: told to fail"):
        execution.compute()
    for index in (0, 1, -1):
        with pytest.raises(BadState, match="failed"):
            execution.get_output_operand_dimensions(index)
        with pytest.raises(BadState, match="failed"):
            execution.get_output_operand_rank(index)
    asynchronous = Execution(compilation)
    bind_all(asynchronous)
    event = asynchronous.start_compute()
    expected = OperationFailed if status == ErrorStatus.DEAD_OBJECT else STATUSES[status]
    with pytest.raises(expected):
        event.wait()


def test_a_foreign_exception_becomes_a_failure_with_its_cause() -> None:
    device = SampleDevice("crashing")
    compilation = finished(add_model(), [device])
    device.script.crash = KeyError("lost")
    execution = Execution(compilation)
    bind_all(execution)
    with pytest.raises(OperationFailed, match="crashing: execute: the driver failed with KeyError: 'lost'") as caught:
        execution.compute()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__cause__ is device.script.crash


def test_memory_that_a_driver_does_not_get_is_a_lack_of_resources() -> None:
    device = SampleDevice("narrow")
    compilation = finished(add_model(), [device])
    device.script.crash = MemoryError("3 GiB")
    execution = Execution(compilation)
    bind_all(execution)
    with pytest.raises(ResourceExhausted, match="narrow: execute: the driver failed with MemoryError: 3 GiB") as caught:
        execution.compute()
    assert caught.value.code == ResultCode.RESOURCE_EXHAUSTED_TRANSIENT


@pytest.mark.parametrize(
    "result",
    [
        ExecutionResult((OutputShape((2, 3)), OutputShape((2, 3)))),
        ExecutionResult((OutputShape((2, 4)),)),
        ExecutionResult((OutputShape((2, 3), False),)),
        ExecutionResult((), Timing(10, 5)),
    ],
)
def test_a_reply_that_breaks_the_rules_is_a_failure(result: ExecutionResult) -> None:
    device = SampleDevice("lying")
    compilation = finished(add_model(), [device])
    device.script.result = result
    execution = Execution(compilation)
    bind_all(execution)
    execution.set_measure_timing(True)
    with pytest.raises(OperationFailed, match="the driver"):
        execution.compute()


@pytest.mark.parametrize("timing", [Timing(), Timing(5, 10), Timing(5), Timing(time_in_driver_ns=7)])
def test_times_are_those_of_the_driver(timing: Timing) -> None:
    device = SampleDevice("timed")
    device.script.timing = timing
    execution = Execution(finished(add_model(), [device]))
    execution.set_measure_timing(True)
    bind_all(execution)
    execution.compute()
    unknown = Timing().time_on_device_ns
    for code, wanted in ((DurationCode.ON_HARDWARE, timing.time_on_device_ns),
                         (DurationCode.IN_DRIVER, timing.time_in_driver_ns),
                         (DurationCode.FENCED_IN_DRIVER, timing.time_in_driver_ns)):  # fmt: skip
        assert execution.get_duration(code) == (None if wanted == unknown else wanted)


def test_times_need_one_explicit_device_and_measuring() -> None:
    loose = Execution(finished(add_model(), [SampleDevice("sample")], fallback=True))
    for call in (lambda: loose.set_measure_timing(True), lambda: loose.set_timeout(1)):
        with pytest.raises(BadData, match="exactly one device"):
            call()
    execution = Execution(finished(add_model(), [SampleDevice("sample")]))
    bind_all(execution)
    execution.compute()
    with pytest.raises(BadState, match="not measured"):
        execution.get_duration(DurationCode.IN_DRIVER)


def test_a_passed_deadline() -> None:
    execution = Execution(finished(add_model(), [SampleDevice("sample")]))
    execution.set_timeout(1)
    bind_all(execution)
    with pytest.raises(MissedDeadline):
        execution.compute()
    unlimited = Execution(finished(add_model(), [SampleDevice("sample")]))
    unlimited.set_timeout(2**64 - 1)
    bind_all(unlimited)
    unlimited.compute()


def test_profiles_come_with_the_steps_of_the_run(execution: Execution) -> None:
    bind_all(execution)
    (step,) = execution.compute_profiled()
    assert step.device == "nnapi-reference"
    assert step.operations == (0,)
    assert step.rows is not None
    assert step.end_ns > step.start_ns


def test_a_profile_of_a_measured_run_keeps_its_times() -> None:
    """The driver's own profiling reports no times of the run as a whole."""
    device = SampleDevice("sample")
    device.script.timing = Timing(3_000, 5_000)
    compilation = finished(add_model(), [device])
    assert compilation.plan is not None
    prepared = compilation.plan.steps[0].prepared
    prepared.execute_profiled = lambda *_arguments: pytest.fail("not measured")  # type: ignore[attr-defined]
    execution = Execution(compilation)
    execution.set_measure_timing(True)
    bind_all(execution)
    (step,) = execution.compute_profiled()
    assert step.rows is None
    assert execution.get_duration(DurationCode.ON_HARDWARE) == 3_000
    assert execution.get_duration(DurationCode.IN_DRIVER) == 5_000


def test_a_profile_of_operations_that_are_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it is told; what was computed is right, and a trace goes on without it."""
    compilation = finished(add_model(), [SampleDevice("sample")])
    assert compilation.plan is not None
    prepared = compilation.plan.steps[0].prepared
    rows = ExecutionProfile((ProfileRow((7,), "kernel", 0, 1),))

    def profiled(request: Request, *limits: int | None) -> tuple[ExecutionResult, ExecutionProfile]:
        return prepared.execute_synchronously(request, False, *limits), rows

    monkeypatch.setattr(prepared, "execute_profiled", profiled, raising=False)
    execution = Execution(compilation)
    bind_all(execution)
    steps = execution.compute_profiled()
    with pytest.raises(BadData, match=r"sample: its profile has 'kernel' compute operations \[7\] of a step of 1"):
        profile_of(steps)
    trace.start(tmp_path / "trace.json")
    try:
        again = Execution(compilation)
        bind_all(again)
        again.compute()
    finally:
        trace.stop()
    assert "sample: trace of an execution" in caplog.text


def test_a_computed_result_that_is_too_large() -> None:
    """AOSP DynamicOutputShapeOverflow: 40000 x 40000 floats are more than 2^32-1 bytes."""
    model = Model()
    first, second, result = (model.add_operand(tensor(*dims)) for dims in ((0, 1), (1, 0), (0, 0)))
    add(model, first, second, result)
    model.identify_inputs_and_outputs([first, second], [result])
    model.finish()
    execution = Execution(finished(model, [], fallback=True))
    execution.set_input(0, np.zeros((40000, 1), np.float32), tensor(40000, 1))
    execution.set_input(1, np.zeros((1, 40000), np.float32), tensor(1, 40000))
    execution.set_output(0, np.zeros(1, np.float32))
    with pytest.raises(OperationFailed, match=r"needs more than 2\^32-1 bytes"):
        execution.compute()


TIMES = [Timing(), Timing(2_000, 3_000), Timing(2_000), Timing(time_in_driver_ns=3_000), Timing(0, 0)]


@pytest.mark.parametrize("kind", COMPUTES)
@pytest.mark.parametrize("driver", ["cpu", "old", "new"])
@pytest.mark.parametrize("timing", TIMES)
def test_times_in_every_way_to_compute(kind: str, driver: str, timing: Timing) -> None:
    """AOSP TimingTest: known, unknown, launched and fenced times; the CPU and old drivers never tell."""
    device = SampleDevice("timed", feature_level=FeatureLevel.HAL_1_1 if driver == "old" else FeatureLevel.HAL_1_3)
    if driver == "new":
        device.script.timing = timing
        device.script.asynchronous_fences = True
        device.script.fenced_timing = Timing(1_000, 1_500)
    compilation = Compilation(add_model(), [reference_device() if driver == "cpu" else Device(device)])
    compilation.finish()
    execution = Execution(compilation)
    execution.set_measure_timing(True)
    bind_all(execution)
    COMPUTES[kind](execution, Burst(compilation))
    launched = timing if driver == "new" else Timing()
    fenced = device.script.fenced_timing if kind == "start_compute_with_dependencies" and driver == "new" else launched
    assert fenced is not None
    wanted = [
        launched.time_on_device_ns,
        launched.time_in_driver_ns,
        fenced.time_on_device_ns,
        fenced.time_in_driver_ns,
    ]
    found = [execution.get_duration(code) for code in DurationCode]
    assert found == [None if time == Timing().time_on_device_ns else time for time in wanted]


@pytest.mark.parametrize("kind", COMPUTES)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failed_execution_has_no_times(kind: str, asynchronous: bool) -> None:
    """AOSP TimingTest: failing at launch, and while waited for."""
    device = SampleDevice("failing")
    compilation = finished(add_model(), [device])
    device.script.execute = ErrorStatus.GENERAL_FAILURE
    device.script.asynchronous_fences = asynchronous
    execution = Execution(compilation)
    execution.set_measure_timing(True)
    bind_all(execution)
    with pytest.raises(OperationFailed):
        COMPUTES[kind](execution, Burst(compilation))
    for code in DurationCode:
        with pytest.raises(BadState, match="failed"):
            execution.get_duration(code)
