# SPDX-License-Identifier: Apache-2.0
"""Reusable executions that a driver binds once: when it is asked to, and what happens if it does not or fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.burst import Burst
from nn_runtime.errors import OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.requests import OtherMemory
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import add_model, finished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.interfaces import ExecutionProfile, IPreparedModel
    from nn_runtime.hal.types import ExecutionResult, Request, RequestArgument
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
    """What the device makes of a request; it takes other memory."""

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

    def with_memory(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> BoundExecution:
        self.device.executed.append("elsewhere")

        def moved(arguments: Sequence[RequestArgument], arrays: Mapping[int, Array]) -> tuple[RequestArgument, ...]:
            return tuple(
                replace(one, location=replace(one.location, pointer=arrays.get(i, one.location.pointer)))
                for i, one in enumerate(arguments)
            )

        old = self.request
        request = replace(old, inputs=moved(old.inputs, inputs), outputs=moved(old.outputs, outputs))
        return BoundExecution(self.device, self.prepared, request, self.measure)


def execution_on(
    device: SampleDevice, *, reusable: bool = True, fallback: bool = False
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


@pytest.mark.parametrize("profiled", [False, True])
def test_other_memory_for_one_run(profiled: bool) -> None:
    device = Binding()
    execution, first, _, result = execution_on(device)
    assert not execution.takes_other_memory  # nothing is bound yet
    execution.compute()
    assert execution.takes_other_memory
    other, elsewhere = 10 * A, np.zeros_like(A)
    run = execution.compute_profiled if profiled else execution.compute
    run(OtherMemory({0: other}, {0: elsewhere}))
    assert np.array_equal(elsewhere, 11 * A)
    assert np.array_equal(result, 2 * A)
    first[:] = 0
    run()
    assert np.array_equal(result, A)
    kind = "profiled" if profiled else "plain"
    assert device.executed == ["plain", "elsewhere", kind, kind]


@pytest.mark.parametrize("device", [Binding(binds=False), SampleDevice("sample")], ids=["none", "other"])
def test_what_is_not_bound_takes_no_other_memory(device: SampleDevice) -> None:
    execution, *_ = execution_on(device)
    execution.compute()
    assert not execution.takes_other_memory


@pytest.mark.parametrize("fails", ["with_memory", "execution"])
def test_a_failure_with_other_memory(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU device reads and writes that memory, too."""
    device = Binding()
    execution, *_, result = execution_on(device, fallback=True)
    execution.compute()
    if fails == "execution":
        device.failure = HalError(ErrorStatus.GENERAL_FAILURE, "told to fail")
    else:
        monkeypatch.setattr(BoundExecution, "with_memory", lambda *_: 1 // 0)
    result[:] = 0
    elsewhere = np.zeros_like(A)
    execution.compute(OtherMemory({1: 10 * A}, {0: elsewhere}))
    assert np.array_equal(elsewhere, 11 * A)
    assert not result.any()
