# SPDX-License-Identifier: Apache-2.0
"""A model made ready on an OpenCL device: binds requests to buffers, enqueues its segments, reads the outputs."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

from gpu_driver.execution.compiled_graph import CompiledGraph
from gpu_driver.execution.compiled_segment import CompiledSegment
from gpu_driver.execution.constant_folding import fold_constants, fold_into_tables
from gpu_driver.execution.execution_context import ExecutionContext
from gpu_driver.execution.graph_run import Commands, GraphRun, Limits
from gpu_driver.execution.profiling import RecordedProfile, check_tells_times, timing_of
from gpu_driver.execution.request_ends import RequestEnds
from gpu_driver.execution.reusable import BindingBurst, bind, reusable
from gpu_driver.execution.turns import check_deadline, in_turn
from gpu_driver.passes.branches import without_branches
from nn_runtime.hal.plain import RunningFencedExecution, execute_after_fences, timing_since_launch
from nn_runtime.hal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    MAXIMUM_LOOP_TIMEOUT_NS,
    ErrorStatus,
    ExecutionPreference,
    ExecutionResult,
    HalError,
    OutputShape,
    Priority,
    Timing,
)
from nn_runtime.hal.validation import validate_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.programs import Program
    from gpu_driver.device.storage import DeviceStorage
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.execution.reusable import ReusableExecution
    from gpu_driver.lowering import Lowering
    from gpu_driver.passes import Rewritten
    from gpu_driver.preparation import Preparation
    from nn_runtime.hal.buffers import BoundBuffers, BufferRegistry
    from nn_runtime.hal.interfaces import ExecutionProfile
    from nn_runtime.hal.types import Model, Request


class PreparedModel:
    """A model on an OpenCL device (IPreparedModel, ReportsProfile)."""

    def __init__(
        self,
        device: DeviceContext,
        model: Model,
        buffers: BufferRegistry[DeviceStorage],
        how: Preparation,
    ) -> None:
        """Lower, pack, build and warm what the model alone fixes; raises HalError."""
        self.model = model
        self.device = device
        self._buffers = buffers
        self.how = how
        self._lock = threading.Lock()
        """Guards the contexts; nothing slow is done, and no other lock taken, while it is held."""
        self._idle: list[ExecutionContext] = []
        self._watched = False
        self._closed = False
        self._checked: weakref.ref[Request] | None = None
        profile = how.profile_of(device.profile)
        main, inner = without_branches(model)
        folded = [fold_constants(device, model, one, profile) for one in (main, *inner.values())]
        tabled = [fold_into_tables(device, model, one, profile) for one in folded]
        self._folding = {program for one in tabled for program in one.programs}
        """Programs that ran at preparation, and will when it is repeated."""
        self._graph, *referenced = (CompiledGraph(device, model, one.graph, profile) for one in tabled)
        self._referenced = dict(zip(inner, referenced, strict=True))
        for program in self._folding:
            device.programs.keep(program)
        self.left_out = _left_out(len(model.main.operations), folded[0].graph, self._graph.lowering)
        """Operations of the main subgraph that no execution computes, and why: words for a profile."""

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute; with `measure` the times on the device (first command to last) and in the driver are told."""
        return self._timed(request, deadline_ns, loop_timeout_ns, [] if measure else None)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute once and return a row per launch and transfer."""
        check_tells_times(self.device.profile)
        start_ns = time.perf_counter_ns()
        events: list[Recorded] = []
        result = self._timed(request, deadline_ns, loop_timeout_ns, events, in_stages=True)
        return result, RecordedProfile(events, time.perf_counter_ns() - start_ns, self.left_out)

    def create_reusable_execution(
        self, request: Request, measure: bool, loop_timeout_ns: int | None
    ) -> ReusableExecution | None:
        """Return the request bound for a model of fixed shapes; None for others and for driver-managed buffers."""
        bound = bind(self._graph, self.model, request)
        return None if bound is None else reusable(self, bound, measure)

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int, RunningFencedExecution]:
        """Execute in a thread once the fences have signalled; the fence that comes back signals the end."""
        launched_ns = time.monotonic_ns()
        self.device.check_process()
        validate_request(self.model, request, allow_unspecified_output=False)
        self._check_open()
        check_deadline(deadline_ns)

        def execute(deadline_ns: int | None) -> tuple[Timing, Timing]:
            timing = self._timed(request, deadline_ns, loop_timeout_ns, [] if measure else None).timing
            return timing_since_launch(timing, launched_ns, time.monotonic_ns()), timing

        name = self.device.profile.name
        return execute_after_fences(name, wait_for, deadline_ns, duration_after_fence_ns, execute)

    def configure_execution_burst(self) -> BindingBurst:
        """Return a burst that keeps the latest request bound."""
        return BindingBurst(self)

    def close(self) -> None:
        """Give kernels, segments and device memory back; executions that run end as usual, later ones are refused."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for context in idle:  # whoever may still refer to it
            context.release_memory()
        for graph in self._graphs:
            graph.close()

    def release_idle(self, before: float) -> bool:
        """Drop the contexts that were last used before, with their memory; return whether any is left.

        With LOW_POWER one of them keeps its kernel objects: memory goes at every short pause.
        """
        with self._lock:
            unused = [context for context in self._idle if context.last_used < before]
            self._idle = [context for context in self._idle if context.last_used >= before]
            watched = self._watched = bool(self._idle)
        for context in unused:  # whoever may still refer to it
            context.release_memory()
        if self.how.preference == ExecutionPreference.LOW_POWER:
            with self._lock:
                self._idle[:0] = () if self._closed else unused[-1:]
        return watched

    @property
    def priority(self) -> Priority:
        """Its priority."""
        return self.how.priority

    @property
    def preference(self) -> ExecutionPreference:
        """What its executions shall spare: LOW_POWER gives memory back soon, SUSTAINED_SPEED only in need."""
        return self.how.preference

    @property
    def programs(self) -> set[Program]:
        """Programs of all that is compiled by now, and of what was computed at preparation."""
        segments = set[CompiledSegment]().union(*(graph.segments for graph in self._graphs))
        built = {program for segment in segments for program in segment.programs if program is not None}
        return built | self._folding

    @property
    def _graphs(self) -> tuple[CompiledGraph, ...]:
        return self._graph, *self._referenced.values()

    def _check(self, request: Request) -> None:
        """Validate a request, once for an object that comes again."""
        if self._checked is None or self._checked() is not request:
            validate_request(self.model, request)
            self._checked = weakref.ref(request)

    def _timed(
        self,
        request: Request,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        events: list[Recorded] | None,
        *,
        in_stages: bool = False,
    ) -> ExecutionResult:
        start_ns = time.perf_counter_ns()
        self.device.check_process()
        self._check(request)
        check_deadline(deadline_ns)
        timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if loop_timeout_ns is None else loop_timeout_ns
        limits = Limits(deadline_ns, min(timeout_ns, MAXIMUM_LOOP_TIMEOUT_NS))
        queue = self.device.queue if events is None else self.device.profiling_queue
        buffers = self._buffers.bind(self, request)
        slot = self.device.executions.slot(self.how.priority, deadline_ns)
        try:
            shapes = in_turn(slot, events, self._execute, request, buffers, limits, queue, events, in_stages)
        except BaseException:
            buffers.mark_failed()
            raise
        if events is None:
            return ExecutionResult(shapes)
        first, last = (events[0][1], events[-1][1]) if events else (None, None)
        in_driver = time.perf_counter_ns() - start_ns
        return ExecutionResult(shapes, timing_of(self.device.profile, first, last, in_driver))

    def _execute(
        self,
        request: Request,
        buffers: BoundBuffers[DeviceStorage],
        limits: Limits,
        queue: cl.CommandQueue,
        events: list[Recorded] | None,
        in_stages: bool,
    ) -> tuple[OutputShape, ...]:
        commands = Commands(queue, self.device.staging, events, in_stages=in_stages)
        ends = RequestEnds(self._graph, request, buffers)
        context = self.begin()
        try:
            outputs = GraphRun(self._graph, context, commands, ends, limits, self._referenced).run()
            ends.finish(outputs, commands)
        except BaseException:
            commands.abandon()  # nothing may write to the caller's memory any more
            raise
        finally:
            self.end(context)
        return ends.shapes

    def begin(self) -> ExecutionContext:
        """Return a context for an execution alone; raises HalError once it is closed."""
        with self._lock:
            self._check_open()
            return self._idle.pop() if self._idle else ExecutionContext(self.device)

    def _check_open(self) -> None:
        if self._closed:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "the prepared model is closed")

    def end(self, context: ExecutionContext) -> None:
        """Take the context back."""
        context.last_used = time.monotonic()
        if self._graph.static is None:
            context.retain(set[CompiledSegment]().union(*(graph.segments for graph in self._graphs)))
        with self._lock:
            if self._closed:
                return
            self._idle.append(context)
            watched, self._watched = self._watched, True
        if not watched:
            self.device.watch(self, self.how.preference)


def _left_out(count: int, folded: Rewritten, lowering: Lowering) -> dict[int, str]:
    """Return which of `count` operations were folded, and which the passes dropped after that."""
    unfolded = {operation for origins in folded.origins for operation in origins}
    computed = {operation for at in range(lowering.operation_count) for operation in lowering.origins(at)}
    words = {operation: "left out" if operation in unfolded else "folded at preparation" for operation in range(count)}
    return {operation: word for operation, word in words.items() if operation not in computed}
