# SPDX-License-Identifier: Apache-2.0
"""Prepared models of HAL 1.0 to 1.3 as canonical ones: synchronous, with shared memory in place of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal import fences
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, check_sizes_known, wait_for_fences
from nn_runtime.hal.relocation import Relocator
from nn_runtime.hal.types import ErrorStatus, ExecutionResult, HalError, Timing
from nn_runtime.hal.versions import v1_0, v1_2, v1_3
from nn_runtime.hal.versions.burst import BurstClient
from nn_runtime.hal.versions.callbacks import ExecutionCallback, checked, checked_reply, guarded
from nn_runtime.hal.versions.conversion import canonical_timing, check_request
from nn_runtime.hal.versions.deaths import launched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IBurstContext, IFencedExecutionCallback
    from nn_runtime.hal.types import Model, OutputShape, Request
    from nn_runtime.hal.versions.deaths import Deaths


class AdaptedPreparedModel:
    """A prepared model of HAL 1.0 or 1.1: asynchronous, without shapes and timing."""

    version = FeatureLevel.HAL_1_0

    def __init__(self, driver: v1_0.IPreparedModel, model: Model | None, deaths: Deaths) -> None:
        """`model` is not known where it was prepared from cache; `deaths` are the device's."""
        self.deaths = deaths
        deaths.link(driver)
        self._driver = driver
        self.model = model
        main = model.main if model is not None else None
        outputs = [main.operands[i] for i in main.output_indexes] if main is not None else []
        self._outputs = tuple(outputs)
        self._relocator = Relocator([operand.type for operand in outputs])

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute, with the arrays of the request in shared memory."""
        self.check(request)
        return self.relocated(request, lambda moved: self._execute(moved, measure, deadline_ns, loop_timeout_ns))

    def relocated(self, request: Request, execute: Callable[[Request], ExecutionResult]) -> ExecutionResult:
        """Call `execute` with a request without pointers, between the copies in and out."""
        relocation = self._relocator.of(request)
        if relocation is None:
            return execute(request)
        if not relocation.lock.acquire(blocking=False):
            relocation = self._relocator.fresh(request)
            relocation.lock.acquire()
        try:
            relocation.copy_in()
            result = execute(relocation.request)
            relocation.copy_out(result)
        finally:
            relocation.lock.release()
        return result

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Wait for the fences, then execute: the version has no fences, and no limit of a duration."""
        check_sizes_known(self._outputs, request)
        wait_for_fences(wait_for, deadline_ns)
        result = self.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        return None, FinishedFencedExecution(result.timing, result.timing)

    def configure_execution_burst(self) -> IBurstContext:
        """Return a burst that executes as usual: the version has none."""
        return PlainBurst(self)

    def close(self) -> None:
        """Watch the driver's object no more; it goes with this one."""
        self.deaths.unlink(self._driver)

    def _execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        callback = ExecutionCallback()
        launched(self.deaths, callback, lambda: self._driver.execute(request, callback), "execute")
        shapes, _timing = callback.wait()
        return ExecutionResult(shapes)

    def check(self, request: Request) -> None:
        """Raise HalError(INVALID_ARGUMENT) unless the version can express a request."""
        if self.model is not None:
            check_request(self.model, request, self.version)


class AdaptedPreparedModel12(AdaptedPreparedModel):
    """A prepared model of HAL 1.2."""

    version = FeatureLevel.HAL_1_2

    def __init__(self, driver: v1_2.IPreparedModel, model: Model | None, deaths: Deaths, synchronous: bool) -> None:
        """`synchronous`: whether it is executed so, or by callback as in HAL 1.0."""
        super().__init__(driver, model, deaths)
        self._driver_1_2 = driver
        self._synchronous = synchronous

    def configure_execution_burst(self) -> IBurstContext:
        """Open a burst on the driver."""
        return BurstClient(self, self._driver_1_2)

    def _execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        if self._synchronous:
            return _result(guarded(lambda: self._call(request, measure, deadline_ns, loop_timeout_ns), "execute"))
        callback = ExecutionCallback()

        def launch() -> int:
            return self._launch(request, measure, deadline_ns, loop_timeout_ns, callback)

        launched(self.deaths, callback, launch, "execute")
        return ExecutionResult(*callback.wait())

    def _launch(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: ExecutionCallback,
    ) -> int:
        return self._driver_1_2.execute_1_2(request, v1_2.MeasureTiming(measure), callback)

    def _call(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        return self._driver_1_2.execute_synchronously(request, v1_2.MeasureTiming(measure))


class AdaptedPreparedModel13(AdaptedPreparedModel12):
    """A prepared model of HAL 1.3."""

    version = FeatureLevel.HAL_1_3

    def __init__(self, driver: v1_3.IPreparedModel, model: Model | None, deaths: Deaths, synchronous: bool) -> None:
        """As for HAL 1.2."""
        super().__init__(driver, model, deaths, synchronous)
        self.driver_1_3 = driver

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Start a fenced execution on the driver; with arrays in the request it ends before the call returns."""
        self.check(request)
        if any(fence < 0 for fence in wait_for):
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fence to wait for is empty")
        check_sizes_known(self._outputs, request)

        def start(moved: Request) -> tuple[int | None, IFencedExecutionCallback]:
            status, fence, callback = guarded(
                lambda: self.driver_1_3.execute_fenced(
                    moved,
                    wait_for,
                    v1_2.MeasureTiming(measure),
                    deadline_ns,
                    loop_timeout_ns,
                    duration_after_fence_ns,
                ),
                "execute_fenced",
            )
            checked(status, "execute_fenced")
            if callback is None:
                raise HalError(ErrorStatus.GENERAL_FAILURE, "execute_fenced: the driver gave no callback")
            return fence, _AdaptedFencedCallback(callback)

        if all(argument.location.pointer is None for argument in (*request.inputs, *request.outputs)):
            return start(request)
        times: list[IFencedExecutionCallback] = []

        def run(moved: Request) -> ExecutionResult:
            fence, callback = start(moved)
            times.append(callback)
            if fence is not None:
                try:
                    if fences.wait(fence) == fences.FenceStatus.FAILED:
                        callback.get_execution_info()  # raises the driver's error
                        raise HalError(ErrorStatus.GENERAL_FAILURE, "the fenced execution failed")
                finally:
                    fences.close(fence)
            return ExecutionResult()

        self.relocated(request, run)
        return None, times[0]

    def _launch(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: ExecutionCallback,
    ) -> int:
        return self.driver_1_3.execute_1_3(request, v1_2.MeasureTiming(measure), deadline_ns, loop_timeout_ns, callback)

    def _call(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        return self.driver_1_3.execute_synchronously_1_3(
            request, v1_2.MeasureTiming(measure), deadline_ns, loop_timeout_ns
        )


class _AdaptedFencedCallback:
    """Times of a fenced execution of HAL 1.3."""

    def __init__(self, driver: v1_3.IFencedExecutionCallback) -> None:
        self._driver = driver

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Ask the driver."""
        status, launched_timing, fenced_timing = guarded(
            lambda: self._driver.get_execution_info(), "get_execution_info"
        )
        checked(status, "get_execution_info")
        return canonical_timing(launched_timing), canonical_timing(fenced_timing)


def _result(reply: tuple[int, Sequence[OutputShape], v1_2.Timing]) -> ExecutionResult:
    shapes, timing = checked_reply(*reply)
    return ExecutionResult(shapes, timing)
