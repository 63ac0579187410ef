# SPDX-License-Identifier: Apache-2.0
"""Bursts (AOSP TestValidation Burst groups)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.device import REFERENCE_NAME
from nn_runtime.errors import BadData, BadState, OperationFailed, UnexpectedNull
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.versions import adapt
from nn_runtime.hal.versions.burst import BurstClient
from nn_runtime.hal.versions.server import Served12
from nn_runtime.memory import Memory
from nn_runtime.testing.sample_drivers import SampleBurst, SampleDevice, SamplePreparedModel
from tests.nn_runtime.graphs import chain_model, finished, numbers, while_model

RELU, TANH = OperationCode.RELU, OperationCode.TANH


def bound(compilation: Compilation, memory: Memory | None = None) -> tuple[Execution, np.ndarray]:
    execution, output = Execution(compilation), np.zeros((2, 3), np.float32)
    execution.set_reusable(True)
    if memory is None:
        execution.set_input(0, numbers(2, 3))
    else:
        execution.set_input_from_memory(0, memory, 0, 24)
    execution.set_output(0, output)
    return execution, output


def test_null_and_state() -> None:
    with pytest.raises(UnexpectedNull, match="burst: the compilation is None"):
        Burst(None)  # type: ignore[arg-type]
    with pytest.raises(BadState, match="burst: the compilation is not finished"):
        Burst(Compilation(chain_model([RELU])))
    compilation = finished(chain_model([RELU]), [SampleDevice("sample")])
    execution, _ = bound(compilation)
    with pytest.raises(UnexpectedNull):
        execution.burst_compute(None)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="another compilation"):
        execution.burst_compute(Burst(finished(chain_model([RELU]), [SampleDevice("sample")])))


def test_every_step_on_a_driver_has_its_channel() -> None:
    devices = [SampleDevice("relu", {RELU}), SampleDevice("other", set())]
    compilation = finished(chain_model([RELU, TANH, RELU]), devices, fallback=True)
    with Burst(compilation) as burst:
        execution, output = bound(compilation)
        for _ in range(3):
            execution.burst_compute(burst)
    np.testing.assert_allclose(output, np.maximum(np.tanh(np.maximum(numbers(2, 3), 0)), 0), rtol=1e-6)
    assert [step.device.name for step in compilation.plan.steps] == ["relu", REFERENCE_NAME, "relu"]  # type: ignore[union-attr]
    assert [len(channel.requests) for channel in devices[0].record.bursts] == [3, 3]
    assert all(channel.closed for channel in devices[0].record.bursts)


def test_interpreted_control_flow_in_a_burst() -> None:
    device = SampleDevice("sample", {OperationCode.ADD})
    compilation = finished(while_model(), [device], fallback=True)
    execution, output = Execution(compilation), np.zeros(1, np.float32)
    for at, number in enumerate((0.0, 1.0, 3.0)):
        execution.set_input(at, np.array([number], np.float32))
    execution.set_output(0, output)
    execution.burst_compute(Burst(compilation))
    assert output[0] == 3
    assert [len(channel.requests) for channel in device.record.bursts] == [3]


def test_without_a_channel_executions_run_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_prepared: SamplePreparedModel) -> SampleBurst:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "no bursts")

    monkeypatch.setattr(SamplePreparedModel, "configure_execution_burst", refuse)
    compilation = finished(chain_model([RELU]), [SampleDevice("sample")])
    execution, output = bound(compilation)
    execution.burst_compute(Burst(compilation))
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))


def test_a_burst_serves_one_execution_at_a_time() -> None:
    compilation = finished(chain_model([RELU]), [SampleDevice("sample")])
    entered, gate = threading.Event(), threading.Event()
    (channel,) = (burst := Burst(compilation)).channels.values()
    inner = channel.execute

    def slowly(*arguments: object) -> object:
        entered.set()
        gate.wait()
        return inner(*arguments)  # type: ignore[arg-type]

    channel.execute = slowly  # type: ignore[assignment, method-assign]
    (first, result), (second, _) = bound(compilation), bound(compilation)
    second.set_reusable(True)
    thread = threading.Thread(target=first.burst_compute, args=(burst,))
    thread.start()
    entered.wait()
    with pytest.raises(BadState, match="another execution is using it"):
        second.burst_compute(burst)
    second.burst_compute(Burst(compilation))
    closes = threading.Thread(target=burst.close)
    closes.start()
    closes.join(0.05)
    assert closes.is_alive()
    assert burst.channels
    with pytest.raises(BadState, match="it is closed"):
        second.burst_compute(burst)
    gate.set()
    for one in (thread, closes):
        one.join()
    np.testing.assert_array_equal(result, np.maximum(numbers(2, 3), 0))
    with pytest.raises(BadState, match="it is closed"):
        second.burst_compute(burst)


@pytest.mark.parametrize("burst_first", [False, True])
def test_memory_and_burst_may_go_in_any_order(burst_first: bool) -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([RELU]), [device])
    memory, burst = Memory.from_array(numbers(2, 3)), Burst(compilation)
    shared = memory.shared
    execution, _ = bound(compilation, memory)
    execution.burst_compute(burst)
    if burst_first:
        burst.close()
        memory.close()
        assert device.record.bursts[0].freed == []
    else:
        memory.close()
        assert device.record.bursts[0].freed == [shared]
        burst.close()


def test_a_failing_burst_is_handled_like_any_execution() -> None:
    device = SampleDevice("sample")
    for fallback in (False, True):
        compilation = finished(chain_model([RELU]), [device], fallback)
        execution, output = bound(compilation)
        device.script.execute = ErrorStatus.GENERAL_FAILURE
        if fallback:
            execution.burst_compute(Burst(compilation))
            np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
        else:
            with pytest.raises(OperationFailed):
                execution.burst_compute(Burst(compilation))
        device.script.execute = None


def test_memory_of_an_output_is_let_go_too() -> None:
    device = SampleDevice("sample")
    compilation = finished(chain_model([RELU]), [device])
    memory, burst = Memory.from_array(np.zeros((2, 3), np.float32)), Burst(compilation)
    shared = memory.shared
    execution = Execution(compilation)
    execution.set_input(0, numbers(2, 3))
    execution.set_output_from_memory(0, memory, 0, 24)
    execution.burst_compute(burst)
    memory.close()
    assert device.record.bursts[0].freed == [shared]
    burst.close()


def test_a_driver_that_fails_to_let_go_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError("driver bug")

    devices = [SampleDevice("relu", {RELU}), SampleDevice("tanh", {TANH})]
    compilation = finished(chain_model([RELU, TANH]), devices)
    memory, burst = Memory.from_array(numbers(2, 3)), Burst(compilation)
    execution, _ = bound(compilation, memory)
    execution.burst_compute(burst)
    first, second = (device.record.bursts[0] for device in devices)
    first.free_memory = first.close = fail  # type: ignore[method-assign, assignment]
    memory.close()
    assert memory.is_closed
    assert len(second.freed) == 1
    burst.close()
    assert second.closed
    for what in ("free_memory", "close"):
        assert f"relu: {what} of a burst: the driver failed with ValueError: driver bug" in caplog.text


def test_requests_go_through_the_channel_of_a_driver_of_hal_1_2() -> None:
    adapted = adapt(Served12(SampleDevice("sample")), "old")
    compilation = finished(chain_model([RELU]), [adapted])
    with Burst(compilation) as burst, Memory.from_array(numbers(2, 3)) as memory:
        (channel,) = burst.channels.values()
        assert isinstance(channel, BurstClient)
        execution, output = bound(compilation, memory)
        for _ in range(3):
            execution.burst_compute(burst)
        assert channel.packets == 3
        np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
        limited, _ = bound(compilation, memory)
        limited.set_loop_timeout(10**9)  # which no packet can carry
        limited.burst_compute(burst)
        assert channel.packets == 3
