# SPDX-License-Identifier: Apache-2.0
"""One step of a plan: a model prepared on a device, and the executor that calls the driver and checks its reply."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nn_runtime.errors import BadData
from nn_runtime.failures import attempt, foreign_failure, guarded
from nn_runtime.hal.interfaces import (
    CreatesReusableExecutions,
    ExecutionProfile,
    IBurstContext,
    IExecution,
    ReportsProfile,
    TakesExecutionAttributes,
)
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.plain import execute_after_fences, timing_since_launch
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.observe import trace
from nn_runtime.preparation import prepare
from nn_runtime.replies import checked_failure, checked_result, started_fenced
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import Attributes, IFencedExecutionCallback, IPreparedModel
    from nn_runtime.hal.types import ExecutionResult, Model, Request, Timing
    from nn_runtime.preparation import PrepareOptions

_log = logging.getLogger("nn_runtime.execution")


@dataclass(frozen=True)
class StepProfile:
    """Times of one step's run in ns of `time.perf_counter_ns`, and the driver's rows where it reports them.

    `operations`: original indices, to which the `operations` of the rows' indices lead.
    """

    device: str
    operations: tuple[int, ...]
    start_ns: int
    end_ns: int
    rows: ExecutionProfile | None

    def check_rows(self) -> None:
        """Raise BadData where the driver's rows are of operations that the step does not have."""
        count = len(self.operations)
        for row in self.rows.rows if self.rows is not None else ():
            if any(not 0 <= at < count for at in row.operations):
                what = f"{self.device}: its profile has {row.kernel!r} compute operations {list(row.operations)}"
                raise BadData(f"{what} of a step of {count}")


@dataclass(frozen=True)
class RunOptions:
    """How one execution is to run: times to measure, absolute deadline, loop timeout; where profiles are collected.

    `bursts`: channels of the steps that have one. `attributes`: of vendor extensions.
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int | None = None
    profile: list[StepProfile] | None = None
    bursts: Mapping[Step, IBurstContext] | None = None
    attributes: Attributes = ()


class Step:
    """Part of a plan on one device: a prepared model, and which operands of the whole model it reads and writes."""

    def __init__(
        self,
        device: Device,
        model: Model,
        prepared: IPreparedModel,
        original_operations: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        cache_token: bytes | None = None,
    ) -> None:
        """`original_operations`: each operation as the user numbered it in the main model.

        `inputs`, `outputs`: slots of the plan's operands. `cache_token`: under which it is kept in the cache, if it is.
        """
        self.device = device
        self.model = model
        self.prepared = prepared
        self.original_operations = tuple(original_operations)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.cache_token = cache_token
        self._output_operands = tuple(model.main.operands[i] for i in model.main.output_indexes)
        self._lock = threading.Lock()
        self._on_reference: Step | None = None
        self._accepted: tuple[weakref.ref[Request], ExecutionResult, ExecutionResult] | None = None
        """The last request, the reply, and that as it was checked: drivers may give the same reply again."""

    def bind(self, request: Request, options: RunOptions) -> IExecution | None:
        """Return the request bound by the driver, where it offers that, for `execute` with such options."""
        if options.attributes or not isinstance(self.prepared, CreatesReusableExecutions):
            return None
        prepared = self.prepared
        what = "create_reusable_execution"
        try:
            bound = guarded(
                lambda: prepared.create_reusable_execution(request, options.measure, options.loop_timeout_ns), what
            )
            return None if bound is None else of_kind(IExecution, bound, what)
        except HalError as error:
            _log.debug("no reusable execution on %s: %s", self.device.name, error)
            return None

    def execute(self, request: Request, options: RunOptions, execution: IExecution | None = None) -> ExecutionResult:
        """Run the driver, with what `bind` returned for the request if given, and check its reply.

        The shapes returned are complete (one per output) unless every output was fully specified. Raises HalError
        alone.
        """
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("step on %s: %d operations", self.device.name, len(self.original_operations))
        try:
            if options.profile is not None or trace.current is not None:
                result = self._call_observed(request, options, execution)
            elif execution is not None and not options.bursts:
                result = execution.execute_synchronously(options.deadline_ns)
            else:
                result = self._call_plain(request, options)
        except HalError as error:
            if error.output_shapes or error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
                raise checked_failure(self._output_operands, error, request) from error
            raise
        except Exception as error:
            raise foreign_failure(error, "execute") from error
        accepted, known = self._accepted, None
        if accepted is not None and accepted[0]() is request:
            if accepted[1] is result:
                return accepted[2]
            known = accepted[2].output_shapes
        checked = checked_result(self._output_operands, result, request, options.measure, known)
        self._accepted = weakref.ref(request), result, checked
        return checked

    def execute_fenced(
        self, request: Request, wait_for: Sequence[int], options: RunOptions, duration_after_fence_ns: int | None
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Start the driver after the fences; return its fence (None when done) and the callback. Raises HalError."""
        if options.attributes and isinstance(self.prepared, TakesExecutionAttributes):
            return self._execute_after_fences(request, wait_for, options, duration_after_fence_ns)
        started = time.perf_counter_ns()
        fence, callback = started_fenced(
            lambda: self.prepared.execute_fenced(
                request,
                wait_for,
                options.measure,
                options.deadline_ns,
                options.loop_timeout_ns,
                duration_after_fence_ns,
            )
        )
        tracer = trace.current
        if tracer is not None:
            tracer.add(trace.DRIVER, "PE", f"{self.device.name} fenced", started, time.perf_counter_ns())
        return fence, callback

    def _execute_after_fences(
        self, request: Request, wait_for: Sequence[int], options: RunOptions, duration_after_fence_ns: int | None
    ) -> tuple[int | None, IFencedExecutionCallback]:
        """Execute in a thread what the HAL has no fenced form for: with attributes."""
        launched_ns = time.monotonic_ns()

        def execute(deadline_ns: int | None) -> tuple[Timing, Timing]:
            timing = self.execute(request, replace(options, deadline_ns=deadline_ns)).timing
            return timing_since_launch(timing, launched_ns, time.monotonic_ns()), timing

        return execute_after_fences(self.device.name, wait_for, options.deadline_ns, duration_after_fence_ns, execute)

    def open_burst(self) -> IBurstContext | None:
        """Return a burst channel; None for the CPU device, or where the driver gives none: it then runs normally."""
        if self.device.is_reference:
            return None
        what = "configure_execution_burst"
        try:
            burst = guarded(self.prepared.configure_execution_burst, what)
            return of_kind(IBurstContext, burst, what)
        except HalError as error:
            _log.debug("no burst on %s: %s", self.device.name, error)
            return None

    def _call_plain(self, request: Request, options: RunOptions) -> ExecutionResult:
        if options.attributes and isinstance(self.prepared, TakesExecutionAttributes):
            return self.prepared.execute_with_attributes(
                request, options.measure, options.deadline_ns, options.loop_timeout_ns, options.attributes
            )
        burst = options.bursts.get(self) if options.bursts else None
        call = self.prepared.execute_synchronously if burst is None else burst.execute
        return call(request, options.measure, options.deadline_ns, options.loop_timeout_ns)

    def _call_observed(self, request: Request, options: RunOptions, execution: IExecution | None) -> ExecutionResult:
        """Call the driver for a profile or a trace: with its own profiling on, if that changes nothing else."""
        start = time.perf_counter_ns()
        rows: ExecutionProfile | None = None
        plain = options.measure or options.attributes or options.bursts
        if not plain and execution is not None:
            result, rows = execution.execute_profiled(options.deadline_ns)
        elif not plain and isinstance(self.prepared, ReportsProfile):
            result, rows = self.prepared.execute_profiled(request, options.deadline_ns, options.loop_timeout_ns)
        elif execution is not None and not options.bursts:
            result = execution.execute_synchronously(options.deadline_ns)
        else:
            result = self._call_plain(request, options)
        if rows is not None:
            of_kind(ExecutionProfile, rows, "execute_profiled")
        end = time.perf_counter_ns()
        if options.profile is not None:
            options.profile.append(StepProfile(self.device.name, self.original_operations, start, end, rows))
        tracer = trace.current
        if tracer is not None:
            observed = partial(tracer.add_execution, self.device.name, self.original_operations, start, end, rows)
            attempt(observed, f"{self.device.name}: trace of an execution")
        return result

    def on_reference(self, reference: Device, options: PrepareOptions) -> Step:
        """Return the same step prepared on the CPU reference device, for partial fallback; raises HalError."""
        with self._lock:
            if self._on_reference is None:
                prepared, _ = prepare(reference, self.model, options, None)
                self._on_reference = Step(
                    reference, self.model, prepared, self.original_operations, self.inputs, self.outputs
                )
            return self._on_reference

    def close(self) -> None:
        """Free the prepared model."""
        attempt(self.prepared.close, f"{self.device.name}: close of a prepared model")
        if self._on_reference is not None:
            self._on_reference.close()
