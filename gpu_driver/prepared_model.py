# SPDX-License-Identifier: Apache-2.0
"""A model made ready on an OpenCL device: binds requests to buffers, enqueues its segments, reads the outputs."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.context import hal_error
from gpu_driver.execution import CompiledSegment, ExecutionContext, Recorded, Transfer, warm_up
from gpu_driver.launch import Launch
from gpu_driver.lowering import Known, Lowering
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, earlier_deadline, wait_for_fences
from nn_runtime.hal.types import (
    UNKNOWN_DURATION,
    ErrorStatus,
    ExecutionResult,
    HalError,
    OutputShape,
    Priority,
    Timing,
)
from nn_runtime.hal.validation import validate_request
from nn_runtime.hal.views import argument_bytes, typed_array
from nn_runtime.operand import dtype_of, element_count, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.context import DeviceContext
    from gpu_driver.device_memory import DeviceBuffer
    from gpu_driver.storage import DeviceStorage
    from nn_runtime.hal.buffers import BoundBuffers, BufferRegistry, ManagedBuffer
    from nn_runtime.hal.types import Model, Request
    from nn_runtime.operand import Array, Dimensions

MAX_SEGMENTS = 32
"""Lowered segments kept for shapes known only at run time."""


class PreparedModel:
    """A model on an OpenCL device (IPreparedModel, ReportsProfile)."""

    def __init__(
        self,
        device: DeviceContext,
        model: Model,
        buffers: BufferRegistry[DeviceStorage],
        priority: Priority = Priority.MEDIUM,
    ) -> None:
        """Lower, pack, build and warm what the model alone fixes; raises HalError."""
        self.model = model
        self.device = device
        self.lowering = Lowering(model, device.profile)
        self.parameters = self.lowering.shape_inputs()
        self.input_places = {operand: i for i, operand in enumerate(model.main.input_indexes)}
        self.output_places = {operand: i for i, operand in enumerate(model.main.output_indexes)}
        self._buffers = buffers
        self._priority = priority
        self._lock = threading.Lock()
        """Guards all below; nothing slow is done, and no other lock taken, while it is held."""
        self._segments: OrderedDict[object, CompiledSegment] = OrderedDict()
        self._idle: list[ExecutionContext] = []
        self._watched = False
        self._closed = False
        self._compiling = threading.Lock()
        self._checked: weakref.ref[Request] | None = None
        self._static = self._prepare_static()

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute; with `measure` the times on the device (first command to last) and in the driver are told."""
        return self._timed(request, deadline_ns, [] if measure else None)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute once and return a row per launch and transfer."""
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
        """Give kernels, segments and device memory back; executions that run end as usual, later ones are refused."""
        with self._lock:
            self._closed = True
            self._idle.clear()
            self._segments.clear()
            self._static = None

    def release_idle(self, before: float) -> bool:
        """Give the memory of idle contexts back; return whether any context still holds some."""
        with self._lock:
            idle = [context for context in self._idle if context.last_used < before]
            for context in idle:
                context.drop_memory()
            self._watched = len(idle) < len(self._idle)
            return self._watched

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
            tuple(known.dimensions.get(i) for i in self.model.main.input_indexes),
            tuple((i, value.tobytes()) for i, value in known.values.items()),
            known.omitted,
        )
        found = self._kept_segment(key)
        if found is not None:
            return found
        with self._compiling:
            return self._kept_segment(key) or self._compile(key, start, known)

    def _kept_segment(self, key: object) -> CompiledSegment | None:
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
            return found

    def _compile(self, key: object, start: int, known: Known) -> CompiledSegment:
        try:
            compiled = CompiledSegment(self.device, self.lowering.lower(start, known))
            warm_up(ExecutionContext(self.device), compiled, self.device.queue)
        except cl.Error as error:
            raise hal_error(error, "preparation") from error
        with self._lock:
            if not self._closed:
                self._segments[key] = compiled
            if len(self._segments) > MAX_SEGMENTS:
                self._segments.popitem(last=False)
                for context in self._idle:
                    context.retain(set(self._segments.values()))
        return compiled

    # Execution

    def _check(self, request: Request) -> None:
        """Validate a request, once for an object that comes again."""
        if self._checked is None or self._checked() is not request:
            validate_request(self.model, request)
            self._checked = weakref.ref(request)

    def _timed(self, request: Request, deadline_ns: int | None, events: list[Recorded] | None) -> ExecutionResult:
        start_ns = time.perf_counter_ns()
        self.device.check_process()
        self._check(request)
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")
        buffers = self._buffers.bind(self, request)
        try:
            with self.device.executions.slot(self._priority, deadline_ns):
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
        queue = self.device.queue if events is None else self.device.profiling_queue
        static, context = self._begin()
        if any(argument.has_no_value for argument in request.inputs):
            static = None  # it was lowered for all inputs
        run = _Run(self, request, buffers, context, queue, events)
        try:
            return run.segments(deadline_ns) if static is None else run.whole(static)
        except BaseException:
            queue.finish()  # nothing may write to the caller's memory any more
            raise
        finally:
            self._end(context)

    def _begin(self) -> tuple[CompiledSegment | None, ExecutionContext]:
        with self._lock:
            if self._closed:
                raise HalError(ErrorStatus.INVALID_ARGUMENT, "the prepared model is closed")
            return self._static, self._idle.pop() if self._idle else ExecutionContext(self.device)

    def _end(self, context: ExecutionContext) -> None:
        context.last_used = time.monotonic()
        with self._lock:
            if self._closed:
                return
            if self._static is None:
                context.retain(set(self._segments.values()))
            self._idle.append(context)
            watched, self._watched = self._watched, True
        if not watched:
            self.device.watch(self)


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
        self._memory: dict[int, DeviceBuffer] = {}
        """Boundary memory by operand: that of the inputs is written."""
        self._transfers: list[cl.Event] = []
        self._last: cl.Event | None = None

    def whole(self, compiled: CompiledSegment) -> tuple[OutputShape, ...]:
        """Run the segment that ends the model."""
        dimensions = compiled.segment.dimensions
        outputs = self._output_bytes()
        shapes = self._output_shapes(dimensions, outputs)
        self._enqueue(compiled)
        for operand, i in self._prepared.output_places.items():
            size_bytes = self._size_bytes(operand, dimensions[operand])
            if i in outputs and size_bytes:
                self._read(self._memory[operand], outputs[i][:size_bytes])
        self._wait()
        for i, buffer in self._buffers.outputs.items():
            buffer.mark_written(dimensions[self._graph.output_indexes[i]])
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
                return self.whole(compiled)
            self._enqueue(compiled)
            values = dict(known.values)
            for operand in segment.parameters:
                values[operand] = self._read_back(operand, segment.dimensions[operand], self._memory[operand])
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
        for operand, i in self._prepared.input_places.items():
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
        buffer = self._buffers.inputs.get(i)
        if buffer is not None:
            return self._read_back(operand, dims, buffer.storage.buffer)
        code = self._graph.operands[operand].type
        return typed_array(self._input_bytes(i, self._size_bytes(operand, dims)), code, dims)

    def _enqueue(self, compiled: CompiledSegment) -> None:
        bound = self._context.segment(compiled)
        boundary = {operand: self._bind(operand, size_bytes) for operand, size_bytes in compiled.boundary.items()}
        self._last = bound.enqueue(self._queue, boundary, self._events) or self._last

    def _bind(self, operand: int, size_bytes: int) -> DeviceBuffer:
        """Return a boundary operand's memory; an input from the host is written to it at its first use."""
        found = self._memory.get(operand)
        if found is not None:
            return found
        managed = self._managed(operand)
        if managed is not None:
            managed.storage.reserve(size_bytes)
            found = managed.storage.buffer
        else:
            found = self._context.boundary(operand, size_bytes)
            place = self._prepared.input_places.get(operand)
            if place is not None and size_bytes:
                self._write(found, self._input_bytes(place, size_bytes))
        self._memory[operand] = found
        return found

    def _managed(self, operand: int) -> ManagedBuffer[DeviceStorage] | None:
        """Return the memory-domain buffer bound to a model input or output, or None."""
        i = self._prepared.input_places.get(operand)
        if i is not None:
            return self._buffers.inputs.get(i)
        i = self._prepared.output_places.get(operand)
        return None if i is None else self._buffers.outputs.get(i)

    def _input_bytes(self, i: int, size_bytes: int) -> Array:
        data = argument_bytes(self._request.inputs[i].location, self._request.pools)
        if data.nbytes < size_bytes:
            message = f"input {i}: needs {size_bytes} bytes, got {data.nbytes}"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, message)
        return data[:size_bytes]

    def _output_bytes(self) -> dict[int, Array]:
        """Return the caller's memory of every output that is wanted on the host."""
        return {
            i: argument_bytes(argument.location, self._request.pools)
            for i, argument in enumerate(self._request.outputs)
            if not argument.has_no_value and i not in self._buffers.outputs
        }

    def _read_back(self, operand: int, dims: Dimensions, memory: DeviceBuffer) -> Array:
        data = np.empty(self._size_bytes(operand, dims), np.uint8)
        if data.nbytes:
            self._read(memory, data)
            self._wait()
        return typed_array(data, self._graph.operands[operand].type, dims)

    def _write(self, buffer: DeviceBuffer, data: Array) -> None:
        self._keep(Transfer("write", data.nbytes), buffer.write(self._queue, np.ascontiguousarray(data)))

    def _read(self, buffer: DeviceBuffer, data: Array) -> None:
        self._keep(Transfer("read", data.nbytes), buffer.read(self._queue, data))

    def _keep(self, transfer: Transfer, event: cl.Event) -> None:
        self._transfers.append(event)
        self._last = event
        if self._events is not None:
            self._events.append((transfer, event))

    def _wait(self) -> None:
        """Wait for the last command, thereby for all of them, and for nobody else's later ones."""
        if self._last is not None:
            self._last.wait()

    def _output_shapes(
        self, dimensions: Mapping[int, Dimensions], outputs: Mapping[int, Array]
    ) -> tuple[OutputShape, ...]:
        """Return the shapes of the outputs; raises HalError where a buffer is too small or a shape contradicts."""
        shapes = []
        for operand, i in self._prepared.output_places.items():
            dims = dimensions[operand]
            argument, buffer = self._request.outputs[i], self._buffers.outputs.get(i)
            wanted = argument.dimensions if buffer is None else buffer.initial_dimensions
            if wanted and (len(wanted) != len(dims) or any(w not in (0, d) for w, d in zip(wanted, dims, strict=True))):
                message = f"output {i}: the request says {list(wanted)}, computed {list(dims)}"
                raise HalError(ErrorStatus.GENERAL_FAILURE, message)
            fits = i not in outputs or self._size_bytes(operand, dims) <= outputs[i].nbytes
            shapes.append(OutputShape(dims, fits))
        short = [i for i, shape in enumerate(shapes) if not shape.is_sufficient]
        if short:
            dims = shapes[short[0]].dimensions
            message = f"output {short[0]}: {list(dims)} does not fit a buffer of {outputs[short[0]].nbytes} bytes"
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, message, tuple(shapes))
        return tuple(shapes)

    def _size_bytes(self, operand: int, dims: Dimensions) -> int:
        return element_count(dims) * dtype_of(self._graph.operands[operand].type).itemsize


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
