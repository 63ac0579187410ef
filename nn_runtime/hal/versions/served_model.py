# SPDX-License-Identifier: Apache-2.0
"""A canonical prepared model behind the interface of an older version (see `server`)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal import fences
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.validation import validate_request
from nn_runtime.hal.versions import v1_0, v1_2, v1_3
from nn_runtime.hal.versions.burst import BurstServer
from nn_runtime.hal.versions.conversion import status_to, timing_to_1_2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IFencedExecutionCallback, IPreparedModel
    from nn_runtime.hal.types import ExecutionResult, Model, OutputShape, Request
    from nn_runtime.hal.versions.channel import Channel

_log = logging.getLogger("nn_runtime.driver")
_NO_TIMING = v1_2.Timing()


class ServedPreparedModel10:
    """A prepared model of HAL 1.0 and 1.1 (v1_0.IPreparedModel)."""

    def __init__(self, prepared: IPreparedModel, version: FeatureLevel, model: Model | None = None) -> None:
        """Keep the prepared model; `model` is not known where it was prepared from cache."""
        self.inner = prepared
        self._version = version
        self._model = model

    def execute(self, request: Request, callback: v1_0.IExecutionCallback) -> int:
        """Launch an execution."""
        return self._launch(request, False, None, None, lambda status, _shapes, _timing: callback.notify(status))

    def _launch(
        self,
        request: Request,
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        notify: Callable[[int, Sequence[OutputShape], v1_2.Timing], None],
    ) -> int:
        if self._model is not None:
            try:
                validate_request(self._model, request, takes_formats=True)
            except HalError as error:
                status = status_to(error.status, self._version)
                notify(status, (), _NO_TIMING)
                return status

        def run() -> None:
            notify(*self._executed(request, measure, deadline_ns, loop_timeout_ns))

        return in_thread(run, lambda: notify(ErrorStatus.GENERAL_FAILURE, (), _NO_TIMING))

    def _executed(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        try:
            result: ExecutionResult = self.inner.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)
        except HalError as error:
            return status_to(error.status, self._version), error.output_shapes, _NO_TIMING
        except Exception as error:
            _log.warning("execution failed with %s: %s", type(error).__name__, error)
            return ErrorStatus.GENERAL_FAILURE, (), _NO_TIMING
        return ErrorStatus.NONE, result.output_shapes, timing_to_1_2(result.timing)


class ServedPreparedModel12(ServedPreparedModel10):
    """A prepared model of HAL 1.2 (v1_2.IPreparedModel)."""

    def execute_1_2(self, request: Request, measure: v1_2.MeasureTiming, callback: v1_2.IExecutionCallback) -> int:
        """Launch an execution."""
        return self._launch(request, bool(measure), None, None, callback.notify_1_2)

    def execute_synchronously(
        self, request: Request, measure: v1_2.MeasureTiming
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        """Execute."""
        return self._executed(request, bool(measure), None, None)

    def configure_execution_burst(
        self, callback: v1_2.IBurstCallback, requests: Channel, results: Channel
    ) -> tuple[int, v1_2.IBurstContext | None]:
        """Open a burst."""
        return ErrorStatus.NONE, BurstServer(self.inner, callback, requests, results)


class ServedPreparedModel13(ServedPreparedModel12):
    """A prepared model of HAL 1.3 (v1_3.IPreparedModel)."""

    def execute_1_3(
        self,
        request: Request,
        measure: v1_2.MeasureTiming,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        callback: v1_3.IExecutionCallback,
    ) -> int:
        """Launch an execution."""
        return self._launch(request, bool(measure), deadline_ns, loop_timeout_ns, callback.notify_1_3)

    def execute_synchronously_1_3(
        self, request: Request, measure: v1_2.MeasureTiming, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[int, Sequence[OutputShape], v1_2.Timing]:
        """Execute."""
        return self._executed(request, bool(measure), deadline_ns, loop_timeout_ns)

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: v1_2.MeasureTiming,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_ns: int | None,
    ) -> tuple[int, int | None, v1_3.IFencedExecutionCallback | None]:
        """Execute after fences."""
        try:
            fence, callback = self.inner.execute_fenced(
                request, wait_for, bool(measure), deadline_ns, loop_timeout_ns, duration_ns
            )
        except HalError as error:
            return status_to(error.status, self._version), None, None
        return ErrorStatus.NONE, fence, ServedFencedCallback(callback, fence)


class ServedFencedCallback:
    """Times of a fenced execution (v1_3.IFencedExecutionCallback)."""

    def __init__(self, inner: IFencedExecutionCallback, fence: int | None) -> None:
        """Keep the callback, and a descriptor of the fence: before it signals there are no times."""
        self._inner = inner
        self._fence = None if fence is None else fences.duplicate(fence)

    def get_execution_info(self) -> tuple[int, v1_2.Timing, v1_2.Timing]:
        """Return status, timing since launch and timing since the fences."""
        if self._fence is not None and fences.wait(self._fence, 0) == fences.FenceStatus.PENDING:
            return ErrorStatus.GENERAL_FAILURE, _NO_TIMING, _NO_TIMING
        try:
            since_launch, since_fences = self._inner.get_execution_info()
        except HalError as error:
            return status_to(error.status, FeatureLevel.HAL_1_3), _NO_TIMING, _NO_TIMING
        return ErrorStatus.NONE, timing_to_1_2(since_launch), timing_to_1_2(since_fences)

    def __del__(self) -> None:
        if self._fence is not None:
            fences.close(self._fence)


def in_thread(run: Callable[[], None], refuse: Callable[[], None]) -> int:
    """Launch a task; where no thread can be had, notify by `refuse` and return GENERAL_FAILURE."""
    try:
        threading.Thread(target=run, name="driver", daemon=True).start()
    except RuntimeError:
        refuse()
        return ErrorStatus.GENERAL_FAILURE
    return ErrorStatus.NONE
