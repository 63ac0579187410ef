# SPDX-License-Identifier: Apache-2.0
"""A model made ready on an OpenCL device: binds requests to buffers, enqueues its segments, reads the outputs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.context import hal_error
from gpu_driver.execution import CompiledSegment, ExecutionContext, Recorded, Transfer, read, warm_up, write
from gpu_driver.launch import Launch
from gpu_driver.lowering import Known, Lowering
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, earlier_deadline, wait_for_fences
from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, ExecutionResult, HalError, OutputShape, Timing
from nn_runtime.hal.validation import validate_request
from nn_runtime.hal.views import argument_bytes, typed_array
from nn_runtime.operand import dtype_of, element_count, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.context import DeviceContext
    from gpu_driver.execution import SegmentContext
    from gpu_driver.storage import DeviceStorage
    from nn_runtime.hal.buffers import BoundBuffers, BufferRegistry
    from nn_runtime.hal.types import Model, Request
    from nn_runtime.operand import Array, Dimensions

MAX_CONTEXTS = 4
"""Executions of one prepared model at once; more wait for one to finish."""
MAX_SEGMENTS = 32
"""Lowered segments kept for shapes known only at run time."""


class PreparedModel:
    """A model on an OpenCL device (IPreparedModel, ReportsProfile)."""

    def __init__(self, device: DeviceContext, model: Model, buffers: BufferRegistry[DeviceStorage]) -> None:
        """Lower, pack, build and warm what the model alone fixes; raises HalError."""
        self.model = model
        self._device = device
        self._buffers = buffers
        self.lowering = Lowering(model, device.profile)
        self.parameters = self.lowering.shape_inputs()
        self._segments: OrderedDict[object, CompiledSegment] = OrderedDict()
        self._lock = threading.Lock()
        self._idle: list[ExecutionContext] = []
        self._slots = threading.BoundedSemaphore(MAX_CONTEXTS)
        self._checked: Request | None = None
        self._static = self._prepare_static()

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute; with `measure` the times on the device (first command to last) and in the driver are told."""
        self._check(request)
        return self._timed(request, deadline_ns, [] if measure else None)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute once and return a row per launch and transfer."""
        self._check(request)
        events: list[Recorded] = []
        result = self._timed(request, deadline_ns, events)
        return result, _profile(events)

    def execute_fenced(
        self,
        request: Request,
        wait_for: Sequence[int],
        measure: bool,
        deadline_ns: int | None,
        loop_timeout_ns: int | None,
        duration_after_fence_ns: int | None,
    ) -> tuple[int | None, FinishedFencedExecution]:
        """Wait for the fences, execute, and return no fence: all is done."""
        start_ns = time.monotonic_ns()
        validate_request(self.model, request, allow_unspecified_output=False)
        wait_for_fences(wait_for, deadline_ns)
        waited_ns = time.monotonic_ns() - start_ns
        deadline_ns = earlier_deadline(deadline_ns, duration_after_fence_ns)
        fenced = self._timed(request, deadline_ns, [] if measure else None).timing
        launched = Timing()
        if fenced.time_in_driver_ns != UNKNOWN_DURATION:
            launched = Timing(fenced.time_on_device_ns, fenced.time_in_driver_ns + waited_ns)
        return None, FinishedFencedExecution(launched, fenced)

    def configure_execution_burst(self) -> PlainBurst:
        """Return a burst that executes as usual: execution contexts keep all there is to keep."""
        return PlainBurst(self)

    def close(self) -> None:
        """Give kernels, segments and device memory back."""
        with self._lock:
            self._idle.clear()
            self._segments.clear()
            self._static = None

    def release_idle(self, before: float) -> bool:
        """Give the memory of idle contexts back; return whether any context still holds some."""
        with self._lock:
            fresh = [context for context in self._idle if context.last_used >= before]
            for context in self._idle:
                if context.last_used < before:
                    context.drop_memory()
            return bool(fresh)

    # Preparation

    def _prepare_static(self) -> CompiledSegment | None:
        """Compile what can be lowered before any request; return it where it is the whole model for all requests."""
        known = self.lowering.static_inputs()
        compiled = self.compiled(0, known)
        whole = compiled.segment.stop == self.lowering.operation_count
        all_inputs = all(i in known.dimensions for i in self.model.main.input_indexes)
        return compiled if whole and all_inputs and not self.parameters else None

    def compiled(self, start: int, known: Known) -> CompiledSegment:
        """Return the lowered, built and warmed segment from `start`, from the cache where it was needed before."""
        key = (
            start,
            tuple(sorted(known.dimensions.items())),
            tuple(sorted((i, value.tobytes()) for i, value in known.values.items())),
            known.omitted,
            known.done,
        )
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
                return found
        compiled = CompiledSegment(self._device, self.lowering.lower(start, known))
        try:
            context = ExecutionContext(self._device)
            warm_up(context, compiled, self._device.queue)
        except cl.Error as error:
            raise hal_error(error, "preparation") from error
        with self._lock:
            self._segments[key] = compiled
            if len(self._segments) > MAX_SEGMENTS:
                _, dropped = self._segments.popitem(last=False)
                for idle in self._idle:
                    idle.forget_segment(dropped)
        return compiled

    # Execution

    def _check(self, request: Request) -> None:
        """Validate a request, once for an object that comes again."""
        if request is not self._checked:
            validate_request(self.model, request)
            self._checked = request

    def _timed(self, request: Request, deadline_ns: int | None, events: list[Recorded] | None) -> ExecutionResult:
        start_ns = time.perf_counter_ns()
        self._device.check_process()
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")
        buffers = self._buffers.bind(self, request)
        try:
            shapes = self._execute(request, buffers, deadline_ns, events)
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
        deadline_ns: int | None,
        events: list[Recorded] | None,
    ) -> tuple[OutputShape, ...]:
        queue = self._device.queue if events is None else self._device.profiling_queue
        with self._slots:
            context = self._take_context()
            run = _Run(self, request, buffers, context, queue, events)
            try:
                if self._static is not None and not any(one.has_no_value for one in request.inputs):
                    return run.static(self._static)
                return run.segments(deadline_ns)
            except BaseException:
                queue.finish()  # nothing may write to the caller's memory any more
                raise
            finally:
                self._give_back(context)

    def _take_context(self) -> ExecutionContext:
        with self._lock:
            return self._idle.pop() if self._idle else ExecutionContext(self._device)

    def _give_back(self, context: ExecutionContext) -> None:
        context.last_used = time.monotonic()
        with self._lock:
            self._idle.append(context)
        self._device.watch(self)


class _Run:
    """One execution in one context."""

    def __init__(
        self,
        prepared: PreparedModel,
        request: Request,
        buffers: BoundBuffers[DeviceStorage],
        context: ExecutionContext,
        queue: cl.CommandQueue,
        events: list[Recorded] | None,
    ) -> None:
        self._prepared = prepared
        self._graph = prepared.model.main
        self._request = request
        self._buffers = buffers
        self._context = context
        self._queue = queue
        self._events = events
        self._written: set[int] = set()
        self._inputs = {operand: i for i, operand in enumerate(self._graph.input_indexes)}
        self._outputs = {operand: i for i, operand in enumerate(self._graph.output_indexes)}
        self._held: list[Array] = []

    def static(self, compiled: CompiledSegment) -> tuple[OutputShape, ...]:
        """Run a model that is one segment whatever the request."""
        shapes = self._output_shapes(compiled.segment.dimensions)
        self._enqueue(compiled)
        self._read_outputs(compiled.segment.dimensions)
        return shapes

    def segments(self, deadline_ns: int | None) -> tuple[OutputShape, ...]:
        """Run segment after segment, reading back the values that the next one is lowered by."""
        known = self._known()
        at = 0
        while True:
            compiled = self._prepared.compiled(at, known)
            segment = compiled.segment
            if segment.stop == at:
                raise HalError(ErrorStatus.GENERAL_FAILURE, f"operation {at}: its parameters are not known")
            if segment.stop == self._prepared.lowering.operation_count:
                return self.static(compiled)
            self._enqueue(compiled)
            values = dict(known.values)
            for operand in segment.parameters:
                values[operand] = self._read_back(operand, segment.dimensions[operand])
            known = Known(segment.dimensions, values, known.omitted, segment.done_ahead)
            at = segment.stop
            if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"the deadline passed before operation {at}")

    def _known(self) -> Known:
        """Return the dimensions of every input, the values of those that are parameters, and the omitted ones."""
        base = self._prepared.lowering.static_inputs()
        dimensions = dict(base.dimensions)
        values: dict[int, Array] = {}
        omitted: set[int] = set()
        for operand, i in self._inputs.items():
            argument = self._request.inputs[i]
            if argument.has_no_value:
                omitted.add(operand)
                continue
            buffer = self._buffers.inputs.get(i)
            declared = self._graph.operands[operand].dimensions
            given = argument.dimensions if buffer is None else buffer.dimensions
            dimensions[operand] = merge_dimensions(declared, given)
            if operand in self._prepared.parameters:
                values[operand] = self._input_value(i, operand, dimensions[operand])
        return Known(dimensions, values, frozenset(omitted))

    def _input_value(self, i: int, operand: int, dims: Dimensions) -> Array:
        code = self._graph.operands[operand].type
        buffer = self._buffers.inputs.get(i)
        if buffer is None:
            data = argument_bytes(self._request.inputs[i].location, self._request.pools)
        else:
            data = np.empty(element_count(dims) * dtype_of(code).itemsize, np.uint8)
            buffer.storage.read(data)
        return typed_array(data[: element_count(dims) * dtype_of(code).itemsize], code, dims)

    def _enqueue(self, compiled: CompiledSegment) -> None:
        segment = compiled.segment
        bound = self._context.segment(compiled)
        for operand in segment.reads:
            self._bind(bound, operand, segment.operands[operand].size_bytes)
            if operand in self._inputs and operand not in self._written:
                self._write_input(operand, segment.operands[operand].size_bytes)
        for operand in segment.writes:
            self._bind(bound, operand, segment.operands[operand].size_bytes)
        bound.enqueue(self._queue, self._events)

    def _bind(self, bound: SegmentContext, operand: int, size_bytes: int) -> None:
        buffer = self._managed(operand)
        if buffer is None:
            bound.bind(operand, self._context.boundary(operand, size_bytes))
        else:
            buffer.reserve(size_bytes)
            bound.bind(operand, buffer.buffer)

    def _managed(self, operand: int) -> DeviceStorage | None:
        """Return the storage of the memory domain bound to a model input or output, or None."""
        if operand in self._inputs:
            found = self._buffers.inputs.get(self._inputs[operand])
        else:
            found = self._buffers.outputs.get(self._outputs[operand]) if operand in self._outputs else None
        return None if found is None else found.storage

    def _write_input(self, operand: int, size_bytes: int) -> None:
        self._written.add(operand)
        i = self._inputs[operand]
        if i not in self._buffers.inputs and size_bytes:
            data = argument_bytes(self._request.inputs[i].location, self._request.pools)[:size_bytes]
            self._held.append(data)
            write(self._queue, self._context.boundary(operand, size_bytes), data, self._events)

    def _read_back(self, operand: int, dims: Dimensions) -> Array:
        code = self._graph.operands[operand].type
        size_bytes = element_count(dims) * dtype_of(code).itemsize
        data = np.empty(size_bytes, np.uint8)
        storage = self._managed(operand)
        buffer = self._context.boundary(operand, size_bytes) if storage is None else storage.buffer
        if size_bytes:
            read(self._queue, buffer, data, self._events)
            self._queue.finish()
        return typed_array(data, code, dims)

    def _output_shapes(self, dimensions: Mapping[int, Dimensions]) -> tuple[OutputShape, ...]:
        """Return the shapes of the outputs; raises HalError where a buffer is too small or a shape contradicts."""
        shapes = []
        for operand, i in self._outputs.items():
            dims = dimensions[operand]
            argument, buffer = self._request.outputs[i], self._buffers.outputs.get(i)
            wanted = argument.dimensions if buffer is None else buffer.initial_dimensions
            if wanted and (len(wanted) != len(dims) or any(w not in (0, d) for w, d in zip(wanted, dims, strict=True))):
                message = f"output {i}: the request says {list(wanted)}, computed {list(dims)}"
                raise HalError(ErrorStatus.GENERAL_FAILURE, message)
            fits = buffer is not None or argument.has_no_value or self._size_bytes(operand, dims) <= self._room(i)
            shapes.append(OutputShape(dims, fits))
        short = [i for i, shape in enumerate(shapes) if not shape.is_sufficient]
        if short:
            dims = shapes[short[0]].dimensions
            message = f"output {short[0]}: {list(dims)} does not fit a buffer of {self._room(short[0])} bytes"
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, message, tuple(shapes))
        return tuple(shapes)

    def _room(self, i: int) -> int:
        return argument_bytes(self._request.outputs[i].location, self._request.pools).nbytes

    def _size_bytes(self, operand: int, dims: Dimensions) -> int:
        return element_count(dims) * dtype_of(self._graph.operands[operand].type).itemsize

    def _read_outputs(self, dimensions: Mapping[int, Dimensions]) -> None:
        for operand, i in self._outputs.items():
            size_bytes = self._size_bytes(operand, dimensions[operand])
            if i in self._buffers.outputs or self._request.outputs[i].has_no_value or not size_bytes:
                continue
            data = argument_bytes(self._request.outputs[i].location, self._request.pools)[:size_bytes]
            read(self._queue, self._context.boundary(operand, size_bytes), data, self._events)
        self._queue.finish()
        for i, buffer in self._buffers.outputs.items():
            buffer.mark_written(dimensions[self._graph.output_indexes[i]])


def _profile(events: Sequence[Recorded]) -> ExecutionProfile:
    if not events:
        return ExecutionProfile(())
    origin = events[0][1].profile.start
    return ExecutionProfile(tuple(_row(command, event, origin) for command, event in events))


def _row(command: object, event: cl.Event, origin: int) -> ProfileRow:
    start, end = event.profile.start - origin, event.profile.end - origin
    if isinstance(command, Launch):
        name = f"{command.kernel.source.removesuffix('.cl')}:{command.kernel.name}"
        return ProfileRow(command.operations, name, start, end, command.bytes_moved, command.flops)
    if isinstance(command, Transfer):
        return ProfileRow((), command.name, start, end, command.size_bytes)
    return ProfileRow(getattr(command, "operations", ()), "copy", start, end)
