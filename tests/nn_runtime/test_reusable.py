# SPDX-License-Identifier: Apache-2.0
"""Reusable executions that a driver binds once: when it is asked to, and what happens if it does not or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.errors import OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add_model, finished

if TYPE_CHECKING:
    from nn_runtime.hal.interfaces import ExecutionProfile, IPreparedModel
    from nn_runtime.hal.types import ExecutionResult, Request
    from nn_runtime.operand import Array

A = np.arange(6, dtype=np.float32).reshape(2, 3)


class Binding(SampleDevice):
    """A device whose prepared models bind requests; `bound` and `executed` record what is asked of it."""

    def __init__(self, refusal: HalError | None = None, failure: HalError | None = None, *, binds: bool = True) -> None:
        super().__init__("binding")
        self.refusal, self.failure, self.binds = refusal, failure, binds
        self.bound: list[tuple[bool, int | None]] = []
        self.executed: list[str] = []

    def prepare_model(self, *arguments: object) -> IPreparedModel:
        prepared = super().prepare_model(*arguments)  # type: ignore[arg-type]

        def create(request: Request, measure: bool, loop_timeout_ns: int | None) -> BoundExecution | None:
            self.bound.append((measure, loop_timeout_ns))
            if self.refusal is not None:
                raise self.refusal
            return BoundExecution(self, prepared, request, measure) if self.binds else None

        prepared.create_reusable_execution = create  # type: ignore[attr-defined]
        return prepared


class BoundExecution:
    """What the device makes of a request."""

    def __init__(self, device: Binding, prepared: IPreparedModel, request: Request, measure: bool) -> None:
        self.device, self.prepared, self.request, self.measure = device, prepared, request, measure

    def execute_synchronously(self, deadline_ns: int | None) -> ExecutionResult:
        self.device.executed.append("plain" if deadline_ns is None else "deadline")
        if self.device.failure is not None:
            raise self.device.failure
        return self.prepared.execute_synchronously(self.request, self.measure, deadline_ns, None)

    def execute_profiled(self, deadline_ns: int | None) -> tuple[ExecutionResult, ExecutionProfile | None]:
        self.device.executed.append("profiled")
        return self.prepared.execute_synchronously(self.request, False, deadline_ns, None), None


def execution_on(
    device: Binding, *, reusable: bool = True, fallback: bool = False
) -> tuple[Execution, Array, Array, Array]:
    """Return an execution of a sum with its inputs and its output."""
    execution = Execution(finished(add_model(), [device], fallback))
    execution.set_reusable(reusable)
    first, second, result = A.copy(), A.copy(), np.zeros_like(A)
    execution.set_input(0, first)
    execution.set_input(1, second)
    execution.set_output(0, result)
    return execution, first, second, result


def test_a_reusable_execution_is_bound_once() -> None:
    device = Binding()
    execution, first, second, result = execution_on(device)
    for factor in range(3):
        first[:] = factor * A
        execution.compute()
        assert np.array_equal(result, (factor + 1) * A)
        assert execution.get_output_operand_dimensions(0) == (2, 3)
    execution.compute_profiled()
    assert len(device.bound) == 1
    assert device.executed == ["plain"] * 3 + ["profiled"]
    assert np.array_equal(second, A)


def test_a_deadline_reaches_what_is_bound() -> None:
    device = Binding()
    execution, *_ = execution_on(device)
    execution.set_measure_timing(True)
    execution.set_timeout(10**12)
    execution.set_loop_timeout(10**9)
    execution.compute()
    assert device.bound == [(True, 10**9)]
    assert device.executed == ["deadline"]


def test_others_are_not_bound() -> None:
    device = Binding()
    execution, *_, result = execution_on(device, reusable=False)
    execution.compute()
    assert device.bound == device.executed == []
    assert np.array_equal(result, 2 * A)


@pytest.mark.parametrize(
    "device", [Binding(binds=False), Binding(HalError(ErrorStatus.GENERAL_FAILURE, "no room"))], ids=["none", "error"]
)
def test_a_driver_that_does_not_bind_executes_requests(device: Binding) -> None:
    execution, *_, result = execution_on(device)
    for _ in range(2):
        result[:] = 0
        execution.compute()
        assert np.array_equal(result, 2 * A)
    assert len(device.bound) == 1
    assert len(device.record.requests) == 2


def test_a_burst_goes_by_its_channel() -> None:
    device = Binding()
    compilation = finished(add_model(), [device])
    execution, result = Execution(compilation), np.zeros_like(A)
    execution.set_reusable(True)
    execution.set_input(0, A)
    execution.set_input(1, A)
    execution.set_output(0, result)
    with Burst(compilation) as burst:
        execution.burst_compute(burst)
    assert device.executed == []
    assert np.array_equal(result, 2 * A)


@pytest.mark.parametrize("fallback", [False, True])
def test_a_failure_is_that_of_any_execution(fallback: bool) -> None:
    device = Binding(failure=HalError(ErrorStatus.GENERAL_FAILURE, "told to fail"))
    execution, *_, result = execution_on(device, fallback=fallback)
    if fallback:
        execution.compute()
        assert np.array_equal(result, 2 * A)
    else:
        with pytest.raises(OperationFailed, match="told to fail"):
            execution.compute()
    device.failure = None
    result[:] = 0
    execution.compute()
    assert np.array_equal(result, 2 * A)
