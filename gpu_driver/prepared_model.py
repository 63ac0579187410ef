# SPDX-License-Identifier: Apache-2.0
"""A model made ready on an OpenCL device: binds requests to buffers, enqueues its segments, reads the outputs."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.compiled_graph import CompiledGraph
from gpu_driver.context import hal_error
from gpu_driver.execution import Clocked, CompiledSegment, ExecutionContext, Recorded, Transfer
from gpu_driver.graph_run import Commands, GraphRun, Limits, Value
from gpu_driver.launch import Launch
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.plain import PlainBurst, RunningFencedExecution, execute_after_fences, timing_since_launch
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
from nn_runtime.hal.views import argument_bytes
from nn_runtime.operand import dtype_of, element_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.context import DeviceContext
    from gpu_driver.device_memory import DeviceBuffer
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.programs import Program
    from gpu_driver.storage import DeviceStorage
    from nn_runtime.hal.buffers import BoundBuffers, BufferRegistry
    from nn_runtime.hal.types import Model, Request
    from nn_runtime.operand import Array, Dimensions


class PreparedModel:
    """A model on an OpenCL device (IPreparedModel, ReportsProfile)."""

    def __init__(
        self,
        device: DeviceContext,
        model: Model,
        buffers: BufferRegistry[DeviceStorage],
        priority: Priority = Priority.MEDIUM,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    ) -> None:
        """Lower, pack, build and warm what the model alone fixes; raises HalError."""
        self.model = model
        self.device = device
        self._buffers = buffers
        self._priority = priority
        self._preference = preference
        self._lock = threading.Lock()
        """Guards the contexts; nothing slow is done, and no other lock taken, while it is held."""
        self._idle: list[ExecutionContext] = []
        self._watched = False
        self._closed = False
        self._checked: weakref.ref[Request] | None = None
        profile = _profile_for(device.profile, preference)
        self._graph = CompiledGraph(device, model, model.main, profile)
        self._referenced = [CompiledGraph(device, model, subgraph, profile) for subgraph in model.referenced]

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute; with `measure` the times on the device (first command to last) and in the driver are told."""
        return self._timed(request, deadline_ns, loop_timeout_ns, [] if measure else None)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute once and return a row per launch and transfer."""
        start_ns = time.perf_counter_ns()
        events: list[Recorded] = []
        result = self._timed(request, deadline_ns, loop_timeout_ns, events, in_stages=True)
        return result, _profile(events, time.perf_counter_ns() - start_ns)

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
        _check_deadline(deadline_ns)

        def execute(deadline_ns: int | None) -> tuple[Timing, Timing]:
            timing = self._timed(request, deadline_ns, loop_timeout_ns, [] if measure else None).timing
            return timing_since_launch(timing, launched_ns, time.monotonic_ns()), timing

        name = self.device.profile.name
        return execute_after_fences(name, wait_for, deadline_ns, duration_after_fence_ns, execute)

    def configure_execution_burst(self) -> PlainBurst:
        """Return a burst that executes as usual: execution contexts keep all there is to keep."""
        return PlainBurst(self)

    def close(self) -> None:
        """Give kernels, segments and device memory back; executions that run end as usual, later ones are refused."""
        with self._lock:
            self._closed = True
            self._idle.clear()
        for graph in self._graphs:
            graph.close()

    def release_idle(self, before: float) -> bool:
        """Drop the contexts that were last used before, with their memory; return whether any is left."""
        with self._lock:
            self._idle = [context for context in self._idle if context.last_used >= before]
            self._watched = bool(self._idle)
            return self._watched

    @property
    def priority(self) -> Priority:
        """Its priority."""
        return self._priority

    @property
    def preference(self) -> ExecutionPreference:
        """What its executions shall spare: LOW_POWER gives memory back at once, SUSTAINED_SPEED only in need."""
        return self._preference

    @property
    def programs(self) -> set[Program]:
        """Programs of all that is compiled by now."""
        segments = set[CompiledSegment]().union(*(graph.segments for graph in self._graphs))
        return {program for segment in segments for program in segment.programs if program is not None}

    @property
    def _graphs(self) -> tuple[CompiledGraph, ...]:
        return self._graph, *self._referenced

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
        _check_deadline(deadline_ns)
        timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if loop_timeout_ns is None else loop_timeout_ns
        limits = Limits(deadline_ns, min(timeout_ns, MAXIMUM_LOOP_TIMEOUT_NS))
        queue = self.device.queue if events is None else self.device.profiling_queue
        commands = Commands(queue, events, in_stages=in_stages)
        buffers = self._buffers.bind(self, request)
        try:
            with self.device.executions.slot(self._priority, deadline_ns):
                shapes = self._execute(request, buffers, limits, commands)
        except BaseException as error:
            buffers.mark_failed()
            if isinstance(error, cl.Error):
                raise hal_error(error, "execution") from error
            raise
        if events is None:
            return ExecutionResult(shapes)
        on_device = events[-1][1].profile.end - events[0][1].profile.start if events else 0
        in_driver = time.perf_counter_ns() - start_ns
        return ExecutionResult(shapes, Timing(min(on_device, in_driver), in_driver))

    def _execute(
        self,
        request: Request,
        buffers: BoundBuffers[DeviceStorage],
        limits: Limits,
        commands: Commands,
    ) -> tuple[OutputShape, ...]:
        ends = _RequestEnds(self._graph, request, buffers)
        context = self._begin()
        try:
            outputs = GraphRun(self._graph, context, commands, ends, limits, self._referenced).run()
            ends.finish(outputs, commands)
        except BaseException:
            commands.abandon()  # nothing may write to the caller's memory any more
            raise
        finally:
            self._end(context)
        return ends.shapes

    def _begin(self) -> ExecutionContext:
        with self._lock:
            self._check_open()
            return self._idle.pop() if self._idle else ExecutionContext(self.device)

    def _check_open(self) -> None:
        if self._closed:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "the prepared model is closed")

    def _end(self, context: ExecutionContext) -> None:
        context.last_used = time.monotonic()
        if self._graph.static is None:
            context.retain(set[CompiledSegment]().union(*(graph.segments for graph in self._graphs)))
        with self._lock:
            if self._closed or self._preference == ExecutionPreference.LOW_POWER:
                return
            self._idle.append(context)
            watched, self._watched = self._watched, True
        if not watched:
            self.device.watch(self, in_need_only=self._preference == ExecutionPreference.SUSTAINED_SPEED)


class _RequestEnds:
    """The ends of the main graph: a request (Ends)."""

    def __init__(self, graph: CompiledGraph, request: Request, buffers: BoundBuffers[DeviceStorage]) -> None:
        self._graph = graph
        self._request = request
        self._buffers = buffers
        self._host_outputs = {
            i: argument_bytes(argument.location, request.pools)
            for i, argument in enumerate(request.outputs)
            if not argument.has_no_value and i not in buffers.outputs
        }
        self.shapes: tuple[OutputShape, ...] = ()

    def input_dimensions(self, place: int) -> Dimensions | None:
        argument, buffer = self._request.inputs[place], self._buffers.inputs.get(place)
        if argument.has_no_value:
            return None
        return argument.dimensions if buffer is None else buffer.dimensions

    def input_data(self, place: int, size_bytes: int) -> Array | None:
        if place in self._buffers.inputs:
            return None
        data = argument_bytes(self._request.inputs[place].location, self._request.pools)
        if data.nbytes < size_bytes:
            message = f"input {place}: needs {size_bytes} bytes, got {data.nbytes}"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, message)
        return data[:size_bytes]

    def input_memory(self, place: int) -> DeviceBuffer | None:
        buffer = self._buffers.inputs.get(place)
        return None if buffer is None else buffer.storage.buffer

    def output_memory(self, place: int, size_bytes: int) -> DeviceBuffer | None:
        buffer = self._buffers.outputs.get(place)
        if buffer is None:
            return None
        buffer.storage.reserve(size_bytes)
        return buffer.storage.buffer

    def outputs_known(self, dimensions: Sequence[Dimensions]) -> None:
        """Keep the shapes; raises HalError where a buffer is too small or a shape contradicts the request."""
        self.shapes = tuple(self._shape(i, dims) for i, dims in enumerate(dimensions))
        short = [i for i, shape in enumerate(self.shapes) if not shape.is_sufficient]
        if short:
            dims, room = self.shapes[short[0]].dimensions, self._host_outputs[short[0]].nbytes
            message = f"output {short[0]}: {list(dims)} does not fit a buffer of {room} bytes"
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, message, self.shapes)

    def finish(self, outputs: Sequence[Value], commands: Commands) -> None:
        """Read the outputs that are wanted on the host and wait for all."""
        for i, data in self._host_outputs.items():
            size_bytes = self._size_bytes(i, outputs[i].dimensions)
            if size_bytes:
                commands.read(outputs[i].memory, data[:size_bytes])
        commands.wait()
        for i, buffer in self._buffers.outputs.items():
            buffer.mark_written(outputs[i].dimensions)

    def _shape(self, i: int, dims: Dimensions) -> OutputShape:
        argument, buffer = self._request.outputs[i], self._buffers.outputs.get(i)
        wanted = argument.dimensions if buffer is None else buffer.initial_dimensions
        if wanted and (len(wanted) != len(dims) or any(w not in (0, d) for w, d in zip(wanted, dims, strict=True))):
            message = f"output {i}: the request says {list(wanted)}, computed {list(dims)}"
            raise HalError(ErrorStatus.GENERAL_FAILURE, message)
        host = self._host_outputs.get(i)
        return OutputShape(dims, host is None or self._size_bytes(i, dims) <= host.nbytes)

    def _size_bytes(self, i: int, dims: Dimensions) -> int:
        operand = self._graph.subgraph.operands[self._graph.subgraph.output_indexes[i]]
        return element_count(dims) * dtype_of(operand.type).itemsize


def _profile_for(profile: DeviceProfile, preference: ExecutionPreference) -> DeviceProfile:
    """Return what to lower for: with LOW_POWER one core of a CPU, so that none spins until another is done."""
    if profile.is_cpu and preference == ExecutionPreference.LOW_POWER:
        return replace(profile, compute_units=1)
    return profile


def _check_deadline(deadline_ns: int | None) -> None:
    if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
        raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")


def _profile(events: Sequence[Recorded], took_ns: int) -> ExecutionProfile:
    """Return rows on the host's clock: what waits for the last command returns as that ends."""
    if not events:
        return ExecutionProfile(())
    origin = min(events[-1][1].profile.end - took_ns, events[0][1].profile.start)
    rows = [_rows(command, event, origin) for command, event in events]
    launches = [id(command.launch) if isinstance(command, Clocked) else None for command, _ in events]
    merged: list[ProfileRow] = []
    for _, group in itertools.groupby(range(len(events)), lambda at: at if launches[at] is None else launches[at]):
        merged += _sums([rows[at] for at in group])
    return ExecutionProfile(tuple(merged))


def _sums(images: Sequence[Sequence[ProfileRow]]) -> Sequence[ProfileRow]:
    """Return the rows of a launch that was enqueued for each image: from the first start, as long as all together."""
    if len(images) == 1:
        return images[0]
    return [
        ProfileRow(
            same[0].operations,
            same[0].kernel,
            same[0].start_ns,
            same[0].start_ns + sum(row.end_ns - row.start_ns for row in same),
            sum(row.bytes_moved for row in same),
            sum(row.flops for row in same),
        )
        for same in zip(*images, strict=True)
    ]


def _rows(command: object, event: cl.Event, origin: int) -> list[ProfileRow]:
    """Return the rows of a command: one, or one for every stage of a launch that told its times."""
    if not isinstance(command, Clocked):
        return [_row(command, event, origin)]
    launch, row = command.launch, _row(command.launch, event, origin)
    clock = launch.clock
    if clock is None or len(launch.stages) < 2:
        return [row]
    lines = command.data.reshape(-1, clock.line_words)[clock.first_line :][: len(clock.stages)]
    began, ended = np.ascontiguousarray(lines[:, 2:6]).view(np.uint64).astype(np.float64).T
    count, of_stage = len(launch.stages), np.array(clock.stages)
    ns_per_cycle = (row.end_ns - row.start_ns) / max(1.0, ended.max() - began.min())
    starts = np.full(count, np.inf)
    np.minimum.at(starts, of_stage, began)
    starts = row.start_ns + (starts - began.min()) * ns_per_cycle
    # Stages overlap, so that a stage's time is that of its tasks, shared out among the groups.
    busy = np.bincount(of_stage, ended - began, count) * (ns_per_cycle / launch.global_size[0])
    spans = zip(launch.stages, starts.astype(int).tolist(), (starts + busy).astype(int).tolist(), strict=True)
    return [
        ProfileRow(stage.operations, row.kernel, start, end, stage.bytes_moved, stage.flops)
        for stage, start, end in spans
    ]


def _row(command: object, event: cl.Event, origin: int) -> ProfileRow:
    start, end = event.profile.start - origin, event.profile.end - origin
    if isinstance(command, Launch):
        name = f"{command.kernel.source.removesuffix('.cl')}:{command.kernel.name}"
        return ProfileRow(command.operations, name, start, end, command.bytes_moved, command.flops)
    if isinstance(command, Transfer):
        return ProfileRow((), command.name, start, end, command.size_bytes)
    return ProfileRow(getattr(command, "operations", ()), "copy", start, end)
