# SPDX-License-Identifier: Apache-2.0
"""Executions: arguments, states, shapes, timing (AOSP TestValidation Execution groups, TestIntrospectionControl)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import DurationCode, FeatureLevel, OperandCode, OperationCode
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
    UnexpectedNull,
)
from nn_runtime.execution import Execution, default_loop_timeout, maximum_loop_timeout
from nn_runtime.hal.memory import HardwareBuffer
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, Extension, OutputShape, Timing
from nn_runtime.memory import Memory
from nn_runtime.model import Model
from nn_runtime.testing.sample_drivers import NullDevice, SampleDevice
from tests.nn_runtime.graphs import add, add_model, chain_model, finished, numbers, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array


@pytest.fixture
def compilation() -> Compilation:
    compilation = Compilation(add_model((2, 3)), [reference_device()])
    compilation.finish()
    return compilation


@pytest.fixture
def execution(compilation: Compilation) -> Execution:
    return Execution(compilation)


def bind_all(execution: Execution) -> Array:
    output = np.zeros((2, 3), np.float32)
    execution.set_input(0, numbers(2, 3))
    execution.set_input(1, numbers(2, 3))
    execution.set_output(0, output)
    return output


def _asynchronously(execution: Execution, _burst: Burst) -> None:
    execution.start_compute().wait()


def _fenced(execution: Execution, _burst: Burst) -> None:
    execution.start_compute_with_dependencies([]).wait()


COMPUTES: dict[str, Callable[[Execution, Burst], None]] = {
    "compute": lambda execution, _burst: execution.compute(),
    "start_compute": _asynchronously,
    "burst_compute": lambda execution, burst: execution.burst_compute(burst),
    "start_compute_with_dependencies": _fenced,
}


@pytest.mark.parametrize("kind", COMPUTES)
def test_every_way_to_compute(compilation: Compilation, kind: str) -> None:
    execution = Execution(compilation)
    output = bind_all(execution)
    COMPUTES[kind](execution, Burst(compilation))
    np.testing.assert_array_equal(output, 2 * numbers(2, 3))
    assert execution.get_output_operand_rank(0) == 2
    assert execution.get_output_operand_dimensions(0) == (2, 3)


@pytest.mark.parametrize("kind", COMPUTES)
def test_an_execution_is_used_once_unless_reusable(compilation: Compilation, kind: str) -> None:
    burst = Burst(compilation)
    execution = Execution(compilation)
    bind_all(execution)
    COMPUTES[kind](execution, burst)
    for other in COMPUTES.values():
        with pytest.raises(BadState, match="not reusable"):
            other(execution, burst)
    reusable = Execution(compilation)
    reusable.set_reusable(True)
    output = bind_all(reusable)
    for other in COMPUTES.values():
        output[:] = 0
        other(reusable, burst)
        np.testing.assert_array_equal(output, 2 * numbers(2, 3))


@pytest.mark.parametrize("reusable", [False, True])
def test_setters_are_refused_once_started(execution: Execution, reusable: bool) -> None:
    execution.set_reusable(reusable)
    bind_all(execution)
    execution.compute()
    for call in (
        lambda: execution.set_input(0, numbers(2, 3)),
        lambda: execution.set_output(0, numbers(2, 3)),
        lambda: execution.set_input_from_memory(0, Memory.from_array(numbers(2, 3)), 0, 24),
        lambda: execution.set_reusable(False),
        lambda: execution.set_loop_timeout(1),
        lambda: execution.set_timeout(1),
        lambda: execution.set_measure_timing(True),
        lambda: execution.enable_input_and_output_padding(True),
    ):
        with pytest.raises(BadState):
            call()


def test_input_errors_say_wanted_and_given(execution: Execution) -> None:
    with pytest.raises(BadData, match=r"input 0: TENSOR_FLOAT32 \[2, 3\] needs 24 bytes, got 20"):
        execution.set_input(0, np.zeros(5, np.float32))
    with pytest.raises(BadData, match="needs 24 bytes, got 28"):
        execution.set_input(0, np.zeros(7, np.float32))
    with pytest.raises(BadData, match="input 0: wanted an array of float32, got float64"):
        execution.set_input(0, np.zeros((2, 3)))
    with pytest.raises(BadData, match="wanted an array of float32, got >f4"):
        execution.set_input(0, np.zeros((2, 3), ">f4"))
    with pytest.raises(BadData, match="C-contiguous"):
        execution.set_input(0, np.zeros((3, 2), np.float32).T)
    with pytest.raises(BadData, match="wanted a numpy array, got list"):
        execution.set_input(0, [1.0])  # type: ignore[arg-type]
    with pytest.raises(BadData, match="input 2 is out of range, the model has 2 inputs"):
        execution.set_input(2, numbers(2, 3))
    with pytest.raises(BadData, match=r"\[2, 4\] contradict \[2, 3\]"):
        execution.set_input(0, numbers(2, 4), tensor(2, 4))
    with pytest.raises(BadData, match="it is a TENSOR_FLOAT32, the type given a TENSOR_INT32"):
        execution.set_input(0, numbers(2, 3), tensor(2, 3, code=OperandCode.TENSOR_INT32))
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    with pytest.raises(BadState, match="input 0 is bound already"):
        execution.set_input(0, numbers(2, 3))


def test_output_errors(execution: Execution) -> None:
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(BadData, match="output 0: the array is read-only"):
        execution.set_output(0, read_only)
    with pytest.raises(BadData, match="needs 24 bytes, got 4"):
        execution.set_output(0, np.zeros(1, np.float32))
    with pytest.raises(BadData, match="no bytes"):
        execution.set_output(0, np.zeros(0, np.float32))


def test_memory_arguments(execution: Execution) -> None:
    inputs, outputs = Memory.from_array(np.arange(12, dtype=np.float32)), Memory.from_array(np.zeros(8, np.float32))
    with pytest.raises(BadData, match="cannot be implied"):
        execution.set_input_from_memory(0, inputs)
    with pytest.raises(BadData, match="bytes 28 to 52 are outside the memory of 48"):
        execution.set_input_from_memory(0, inputs, 28, 24)
    with pytest.raises(BadData, match="needs 24 bytes, got 28"):
        execution.set_input_from_memory(0, inputs, 0, 28)
    with pytest.raises(UnexpectedNull):
        execution.set_input_from_memory(0, None)  # type: ignore[arg-type]
    execution.set_input_from_memory(0, inputs, 0, 24)
    execution.set_input_from_memory(1, inputs, 24, 24)
    execution.set_output_from_memory(0, outputs, 8, 24)
    execution.compute()
    assert outputs.to_array(np.float32, (8,)).tolist() == [0, 0, 6, 8, 10, 12, 14, 16]


def test_padding(compilation: Compilation) -> None:
    execution = Execution(compilation)
    execution.enable_input_and_output_padding(True)
    output = np.full(8, -1, np.float32)
    execution.set_input(0, np.ones(16, np.float32))
    execution.set_input_from_memory(1, Memory.from_array(np.ones(16, np.float32)), 0, 64)
    execution.set_output(0, output)
    execution.compute()
    assert output.tolist() == [2] * 6 + [-1, -1]
    late = Execution(compilation)
    late.set_input(0, numbers(2, 3))
    with pytest.raises(BadState, match="bound already"):
        late.enable_input_and_output_padding(True)


def test_an_argument_that_is_not_bound(execution: Execution) -> None:
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, numbers(2, 3))
    with pytest.raises(BadData, match="input 1 is not bound"):
        execution.compute()
    with pytest.raises(BadState):
        execution.compute()


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


def test_one_of_two_threads_computes() -> None:
    gate = threading.Event()
    device = SampleDevice("slow")
    compilation = finished(add_model(), [device])
    execution = Execution(compilation)
    bind_all(execution)
    prepared = compilation.plan.steps[0].prepared if compilation.plan else None
    assert prepared is not None
    inner = prepared.execute_synchronously

    def slowly(*arguments: object) -> ExecutionResult:
        gate.wait()
        return inner(*arguments)  # type: ignore[arg-type]

    prepared.execute_synchronously = slowly  # type: ignore[method-assign]
    event = execution.start_compute()
    with pytest.raises(BadState, match="is computing"):
        execution.compute()
    with pytest.raises(BadState):
        execution.get_output_operand_rank(0)
    with pytest.raises(MissedDeadline):
        event.wait(0.01)
    gate.set()
    event.wait()
    event.wait()
    with pytest.raises(BadData, match="no sync fence"):
        event.sync_fence_fd()


def test_bursts(compilation: Compilation, execution: Execution) -> None:
    bind_all(execution)
    other = Compilation(add_model(), [reference_device()])
    other.finish()
    with pytest.raises(UnexpectedNull):
        execution.burst_compute(None)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="another compilation"):
        execution.burst_compute(Burst(other))
    burst = Burst(compilation)
    with burst.in_use(), pytest.raises(BadState, match="burst"):
        execution.burst_compute(burst)
    execution.burst_compute(burst)


def test_loop_timeouts(execution: Execution) -> None:
    assert default_loop_timeout() == 2 * 10**9 < maximum_loop_timeout() == 15 * 10**9
    execution.set_loop_timeout(2**64 - 1)


def test_unknown_dimensions_are_completed_by_the_arguments() -> None:
    compilation = Compilation(chain_model([OperationCode.RELU], (0, 3)), [reference_device()])
    compilation.finish()
    execution = Execution(compilation)
    with pytest.raises(BadData, match=r"dimensions \[0, 3\] must be known"):
        execution.set_input(0, numbers(2, 3))
    with pytest.raises(BadData, match="contradict"):
        execution.set_input(0, numbers(2, 3), tensor(3, 2))
    with pytest.raises(BadData, match="2\\^32"):
        execution.set_input(0, numbers(2, 3), tensor(2**31, 3))
    with pytest.raises(BadData, match="2\\^32"):
        execution.set_output(0, numbers(2, 3), tensor(2**31, 3))
    output = np.zeros(20, np.float32)
    execution.set_input(0, numbers(2, 3), tensor(2, 3))
    execution.set_output(0, output)
    execution.compute()
    assert execution.get_output_operand_dimensions(0) == (2, 3)
    np.testing.assert_array_equal(output[:6].reshape(2, 3), np.maximum(numbers(2, 3), 0))


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
            through_hal = kind in ("start_compute", "start_compute_with_dependencies")
            wanted = STATUSES.get(status, OutputInsufficientSize)
            if through_hal and status == ErrorStatus.DEAD_OBJECT:
                wanted = OperationFailed
            with pytest.raises(wanted):
                compute(execution, burst)
            if status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE and kind != "start_compute_with_dependencies":
                assert execution.get_output_operand_dimensions(0) == (2, 3)
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
    with pytest.raises(BadState, match="failed"):
        execution.get_output_operand_dimensions(0)
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
    with pytest.raises(OperationFailed, match="crashing: the driver failed with KeyError: 'lost'") as caught:
        execution.compute()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__cause__ is device.script.crash


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


def test_a_reused_execution_reuses_its_request() -> None:
    device = NullDevice("null")
    execution = Execution(finished(add_model(), [device]))
    execution.set_reusable(True)
    bind_all(execution)
    execution.compute()
    execution.compute()
    first, second = device.record.requests
    assert first is second


def test_profiles_come_with_the_steps_of_the_run(execution: Execution) -> None:
    bind_all(execution)
    (step,) = execution.compute_profiled()
    assert step.device == "nnapi-reference"
    assert step.operations == (0,)
    assert step.rows is not None
    assert step.end_ns > step.start_ns


def _compute_at_once(execution: Execution, ready: threading.Barrier, results: list[str]) -> None:
    ready.wait()
    try:
        execution.compute()
    except BadState:
        results.append("refused")
    else:
        results.append("done")


@pytest.mark.parametrize("reusable", [False, True])
def test_two_threads_at_one_execution(reusable: bool) -> None:
    """Exactly one of those that start while it computes wins (AOSP Reusable- and NonReusableExecutionConcurrent)."""
    compilation = finished(add_model(), [SampleDevice("sample")])
    for _ in range(20):
        execution = Execution(compilation)
        execution.set_reusable(reusable)
        bind_all(execution)
        results: list[str] = []
        ready = threading.Barrier(2)

        threads = [threading.Thread(target=_compute_at_once, args=(execution, ready, results)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["done", "refused"] or (reusable and results == ["done", "done"])
        if reusable:
            execution.compute()
        else:
            with pytest.raises(BadState):
                execution.compute()


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


@pytest.mark.parametrize("hardware", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_lengths_of_memory_arguments(hardware: bool, padded: bool) -> None:
    """AOSP Set{Input,Output}From{Memory,AHardwareBufferBlob}, each with and without padding."""
    compilation = finished(add_model((2, 3)), [SampleDevice("sample")])
    memory = Memory.from_hardware_buffer(HardwareBuffer(96)) if hardware else Memory.from_array(np.zeros(96, np.uint8))
    for setter in ("set_input_from_memory", "set_output_from_memory"):
        execution = Execution(compilation)
        execution.enable_input_and_output_padding(padded)
        bind = getattr(execution, setter)
        for index, where in ((0, (0, 23)), (0, (80, 24)), (0, (0, 0)), (9, (0, 24)), (0, (-4, 24)), (0, (0, 97))):
            with pytest.raises(BadData):
                bind(index, memory, *where)
        with pytest.raises(BadData):
            bind(0, memory, 0, 24, tensor(2, 4))
        if not padded:
            with pytest.raises(BadData, match="needs 24 bytes, got 28"):
                bind(0, memory, 0, 28)
        bind(0, memory, 0, 28 if padded else 24)
        with pytest.raises(BadState, match="bound already"):
            bind(0, memory, 0, 24)


class Attributed(SampleDevice):
    """A device that takes attributes of its extension."""

    def __init__(self) -> None:
        super().__init__("attributed")
        self.script.extensions = (Extension("com.example.attributes"),)
        self.prepared_with: list[object] = []

    def prepare_model_with_attributes(self, *arguments: object) -> object:
        self.prepared_with.append(arguments[-1])
        prepared = self.prepare_model(*arguments[:-1])  # type: ignore[arg-type]
        prepared.execute_with_attributes = self.execute_with(prepared)  # type: ignore[attr-defined]
        return prepared

    def execute_with(self, prepared: object) -> Callable[..., object]:
        def execute(*arguments: object) -> object:
            self.prepared_with.append(arguments[-1])
            return prepared.execute_synchronously(*arguments[:-1])  # type: ignore[attr-defined]

        return execute


NAME = "com.example.attributes"


def test_extension_attributes_reach_the_driver() -> None:
    """AOSP AddExtensionAttribute, ExecutionAddExtensionAttribute for one device."""
    device = Attributed()
    compilation = Compilation(add_model(), [Device(device)])
    for call in (
        lambda: compilation.add_extension_attribute(None, 0, b""),  # type: ignore[arg-type]
        lambda: compilation.add_extension_attribute(NAME, 0, None),
    ):  # type: ignore[arg-type]
        with pytest.raises(UnexpectedNull):
            call()
    compilation.add_extension_attribute(NAME, 2, b"second")
    compilation.add_extension_attribute(NAME, 1, b"first")
    with pytest.raises(BadData, match="there already"):
        compilation.add_extension_attribute(NAME, 1, b"again")
    with pytest.raises(BadData, match="no device has an extension"):
        compilation.add_extension_attribute("com.example.unknown", 1, b"")
    with pytest.raises(BadData, match="0 to 65535"):
        compilation.add_extension_attribute(NAME, 65536, b"")
    compilation.finish()
    with pytest.raises(BadState):
        compilation.add_extension_attribute(NAME, 3, b"")
    execution = Execution(compilation)
    with pytest.raises(UnexpectedNull):
        execution.add_extension_attribute(NAME, 0, None)  # type: ignore[arg-type]
    execution.add_extension_attribute(NAME, 7, b"run")
    with pytest.raises(BadData, match="there already"):
        execution.add_extension_attribute(NAME, 7, b"run")
    bind_all(execution)
    execution.compute()
    with pytest.raises(BadState):
        execution.add_extension_attribute(NAME, 8, b"")
    assert device.prepared_with == [((NAME, 1, b"first"), (NAME, 2, b"second")), ((NAME, 7, b"run"),)]


@pytest.mark.parametrize("count", [0, 2])
def test_extension_attributes_need_one_explicit_device(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICE", "cpu")
    devices = [Device(Attributed()), Device(SampleDevice("other"))][:count]
    compilation = Compilation(add_model(), devices or None)
    with pytest.raises(BadData, match="exactly one device"):
        compilation.add_extension_attribute(NAME, 0, b"")
    compilation.finish()
    with pytest.raises(BadData, match="exactly one device"):
        Execution(compilation).add_extension_attribute(NAME, 0, b"")


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
