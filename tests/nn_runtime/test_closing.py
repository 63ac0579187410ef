# SPDX-License-Identifier: Apache-2.0
"""Compilations that are closed while executions compute: these end as usual on every driver, later ones are refused."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadState, OperationFailed
from nn_runtime.execution import Execution
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.graphs import chain_model, finished, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.operand import Array

PATIENCE_S = 60
WANTED = np.tanh(np.maximum(numbers(2, 3), 0))


class Gate:
    """A driver's prepared model that lets executions begin only when it is opened."""

    def __init__(self, inner: IPreparedModel) -> None:
        self._inner = inner
        self.entered, self.opened, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.failure: HalError | None = None
        self.closings = 0

    def execute_synchronously(self, *arguments: Any) -> Any:
        self._pass()
        return self._inner.execute_synchronously(*arguments)

    def execute_fenced(self, *arguments: Any) -> Any:
        self._pass()
        return self._inner.execute_fenced(*arguments)

    def close(self) -> None:
        self.closings += 1
        self._inner.close()
        self.closed.set()

    def _pass(self) -> None:
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure


def _gated(device: Device) -> tuple[Compilation, Gate]:
    compilation = Compilation(chain_model([OperationCode.RELU, OperationCode.TANH]), [device])
    compilation.finish()
    assert compilation.plan is not None
    (step,) = compilation.plan.steps
    gate = Gate(step.prepared)
    step.prepared = gate  # type: ignore[assignment]
    return compilation, gate


def _bound(compilation: Compilation) -> tuple[Execution, Array]:
    execution, output = Execution(compilation), np.zeros((2, 3), np.float32)
    execution.set_input(0, numbers(2, 3))
    execution.set_output(0, output)
    return execution, output


def _fenced(execution: Execution) -> None:
    execution.start_compute_with_dependencies([]).wait()


COMPUTES: dict[str, Callable[[Execution], None]] = {
    "compute": lambda execution: execution.compute(),
    "start_compute": lambda execution: execution.start_compute().wait(),
    "start_compute_with_dependencies": _fenced,
}


@pytest.mark.parametrize("kind", COMPUTES)
def test_an_execution_that_computes_ends_as_usual(device: Device, kind: str) -> None:
    compilation, gate = _gated(device)
    execution, output = _bound(compilation)
    later, _ = _bound(compilation)
    thread = threading.Thread(target=COMPUTES[kind], args=(execution,))
    thread.start()
    assert gate.entered.wait(PATIENCE_S)
    compilation.close()
    assert gate.closings == 0
    with pytest.raises(BadState, match="compute: the compilation is closed"):
        COMPUTES[kind](later)
    assert gate.closings == 0
    gate.opened.set()
    thread.join(PATIENCE_S)
    np.testing.assert_allclose(output, WANTED, rtol=1e-6)
    assert gate.closings == 1


def test_one_that_fails_counts_as_ended(device: Device) -> None:
    compilation, gate = _gated(device)
    execution, _ = _bound(compilation)
    gate.failure = HalError(ErrorStatus.GENERAL_FAILURE, "as told")
    event = execution.start_compute()
    assert gate.entered.wait(PATIENCE_S)
    compilation.close()
    gate.opened.set()
    with pytest.raises(OperationFailed, match="as told"):
        event.wait()
    assert gate.closings == 1


@pytest.mark.parametrize("ran", [False, True])
def test_without_any_that_computes_all_is_freed_at_once(device: Device, ran: bool) -> None:
    compilation, gate = _gated(device)
    gate.opened.set()
    execution, _ = _bound(compilation)
    if ran:
        execution.compute()
    compilation.close()
    compilation.close()
    with pytest.raises(BadState):
        execution.compute()
    assert gate.closings == 1


@pytest.mark.parametrize("codes", [[OperationCode.RELU], [OperationCode.RELU, OperationCode.TANH]])
def test_what_took_over_on_the_cpu_is_freed_too(codes: list[OperationCode]) -> None:
    devices = [SampleDevice(code.name, {code}) for code in codes]
    compilation = finished(chain_model(codes), devices, fallback=True)
    devices[0].script.execute = ErrorStatus.GENERAL_FAILURE
    execution, _ = _bound(compilation)
    execution.compute()
    plan = compilation.plan
    assert plan is not None
    assert plan.reference is not None
    took_over = (
        plan.whole_on_reference() if plan.is_simple else plan.steps[0].on_reference(plan.reference, plan.options)
    )
    gate = Gate(took_over.prepared)
    took_over.prepared = gate  # type: ignore[assignment]
    compilation.close()
    assert gate.closings == 1


def test_an_execution_that_was_dropped_ends_before_what_it_uses_is_freed(device: Device) -> None:
    compilation, gate = _gated(device)
    gate.opened.set()
    _bound(compilation)[0].start_compute_with_dependencies([])
    gc.collect()
    compilation.close()
    assert gate.closed.wait(PATIENCE_S)
    assert gate.closings == 1


def test_threads_that_compute_while_it_is_closed(device: Device) -> None:
    """Each ends with the right numbers or with BadState, again and again."""
    for _ in range(20):
        compilation = Compilation(chain_model([OperationCode.RELU, OperationCode.TANH]), [device])
        compilation.finish()
        ready = threading.Barrier(4)
        failures: list[BaseException] = []

        def work(
            compilation: Compilation = compilation,
            ready: threading.Barrier = ready,
            failures: list[BaseException] = failures,
        ) -> None:
            execution, output = _bound(compilation)
            execution.set_reusable(True)
            ready.wait(PATIENCE_S)
            try:
                with contextlib.suppress(BadState):
                    for _ in range(1000):
                        output[:] = 0
                        execution.compute()
                        np.testing.assert_allclose(output, WANTED, rtol=1e-6)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        ready.wait(PATIENCE_S)
        compilation.close()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert failures == []


def test_a_driver_that_fails_to_close_does_not_keep_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("driver bug")

    relu, tanh = OperationCode.RELU, OperationCode.TANH
    compilation = finished(chain_model([relu, tanh]), [SampleDevice("relu", {relu}), SampleDevice("tanh", {tanh})])
    assert compilation.plan is not None
    first, second = (step.prepared for step in compilation.plan.steps)
    closings: list[object] = []
    first.close = fail  # type: ignore[method-assign]
    second.close = lambda: closings.append(second)  # type: ignore[method-assign]
    compilation.close()
    assert closings == [second]
    assert "relu: close of a prepared model: the driver failed with ValueError: driver bug" in caplog.text
