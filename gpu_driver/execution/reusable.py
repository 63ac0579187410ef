# SPDX-License-Identifier: Apache-2.0
"""A request bound once to a model of fixed shapes, so that an execution enqueues and waits, and little else."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpu_driver.execution.graph_run import Commands
from gpu_driver.execution.profiling import RecordedProfile, check_tells_times, timing_of
from gpu_driver.execution.recorded import take_stamps
from gpu_driver.execution.request_ends import RequestEnds
from gpu_driver.execution.turns import check_deadline, in_turn
from nn_runtime.errors import NNError
from nn_runtime.hal.buffers import BoundBuffers
from nn_runtime.hal.interfaces import IPreparedModel
from nn_runtime.hal.plain import PlainBurst
from nn_runtime.hal.types import BufferToken, ExecutionResult, HalError, OutputShape
from nn_runtime.hal.validation import validate_request
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyopencl as cl

    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.scheduler import Slot
    from gpu_driver.execution.compiled_graph import CompiledGraph
    from gpu_driver.execution.compiled_segment import CompiledSegment
    from gpu_driver.execution.execution_context import ExecutionContext
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.execution.segment_context import SegmentContext
    from nn_runtime.hal.interfaces import ExecutionProfile
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, Priority, Request
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class Bound:
    """A segment that is all of a model, and a request's host memory by operand, as many bytes as the operand has.

    `input_operands`: of those by the number of the argument; the numbers of outputs are the places in `outputs`.
    """

    segment: CompiledSegment
    inputs: Mapping[int, Array]
    input_operands: Mapping[int, int]
    outputs: Mapping[int, Array]
    shapes: tuple[OutputShape, ...]


def bind(graph: CompiledGraph, model: Model, request: Request) -> Bound | None:
    """Return a request with all that is known before it is executed; None where that is not all.

    So it is for shapes that are not fixed, arguments that are left out, wrong or no host memory, and outputs that the
    segment does not write.
    """
    segment, main = graph.static, graph.subgraph
    if segment is None or any(isinstance(pool, BufferToken) for pool in request.pools):
        return None
    sizes = segment.boundary
    if not all(sizes.get(i) for i in main.output_indexes):
        return None
    if any(one.has_no_value for one in (*request.inputs, *request.outputs)):
        return None
    try:
        validate_request(model, request)
        ends = RequestEnds(graph, request, BoundBuffers())
        ends.outputs_known([segment.segment.dimensions[i] for i in main.output_indexes])
        inputs = {i: ends.input_data(place, sizes[i]) for i, place in graph.input_places.items() if sizes.get(i)}
    except (HalError, NNError):
        return None  # it shows again when the request is executed
    given = {i: data for i, data in inputs.items() if data is not None}
    outputs = {i: ends.host_outputs[place][: sizes[i]] for place, i in enumerate(main.output_indexes)}
    return Bound(segment, given, {graph.input_places[i]: i for i in given}, outputs, ends.shapes)


class Prepared(IPreparedModel, Protocol):
    """What is needed of a prepared model: PreparedModel is one."""

    device: DeviceContext
    left_out: dict[int, str]

    @property
    def priority(self) -> Priority:
        """Its priority."""

    def begin(self) -> ExecutionContext:
        """Return a context for an execution alone; raises HalError once it is closed."""

    def end(self, context: ExecutionContext) -> None:
        """Take the context back."""

    def create_reusable_execution(
        self, request: Request, measure: bool, loop_timeout_ns: int | None
    ) -> ReusableExecution | None:
        """Return the request bound, None where that is not possible."""


@dataclass(frozen=True)
class _Memory:
    """What memory an execution uses: of the device, in place of what it would copy, and of the host, by operand."""

    in_place: Mapping[int, DeviceBuffer]
    inputs: Mapping[int, Array]
    outputs: Mapping[int, Array]


class ReusableExecution:
    """A bound request (IExecution).

    Arguments that begin on a page are used in place where the device can; others are copied by way of the memory of
    the execution's context.
    """

    def __init__(self, prepared: Prepared, bound: Bound, measure: bool, in_place: Mapping[int, DeviceBuffer]) -> None:
        """Use `reusable`."""
        self._prepared = prepared
        self._device = prepared.device
        self._segment = bound.segment
        self._measure = measure
        self._result = ExecutionResult(bound.shapes)
        self._slot = prepared.device.executions.slot(prepared.priority)
        self._memory = _Memory(
            in_place,
            {i: data for i, data in bound.inputs.items() if i not in in_place},
            {i: data for i, data in bound.outputs.items() if i not in in_place},
        )
        self._own = [(i, size) for i, size in bound.segment.boundary.items() if i not in in_place]

    def execute_synchronously(self, deadline_ns: int | None, memory: _Memory | None = None) -> ExecutionResult:
        """Execute; if it is measured, the times on the device (first command to last) and in the driver are told.

        memory: other than the request's.
        """
        self._device.check_process()
        slot = self._slot if deadline_ns is None else self._slot_until(deadline_ns)
        memory = memory or self._memory
        if not self._measure:
            in_turn(slot, None, self._run, self._device.queue, None, memory, False)
            return self._result
        start_ns = time.perf_counter_ns()
        events: list[Recorded] = []
        queue = self._device.profiling_queue
        last = in_turn(slot, events, self._run, queue, events, memory, False)
        in_driver = time.perf_counter_ns() - start_ns
        first = events[0][1] if events else last
        return ExecutionResult(self._result.output_shapes, timing_of(self._device.profile, first, last, in_driver))

    def execute_profiled(
        self, deadline_ns: int | None, memory: _Memory | None = None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute and return a row per launch and transfer, and per stage of a launch."""
        check_tells_times(self._device.profile)
        start_ns = time.perf_counter_ns()
        self._device.check_process()
        slot = self._slot if deadline_ns is None else self._slot_until(deadline_ns)
        memory = memory or self._memory
        events: list[Recorded] = []
        in_turn(slot, events, self._run, self._device.profiling_queue, events, memory, True)
        return self._result, RecordedProfile(events, time.perf_counter_ns() - start_ns, self._prepared.left_out)

    def _slot_until(self, deadline_ns: int) -> Slot:
        check_deadline(deadline_ns)
        return self._device.executions.slot(self._prepared.priority, deadline_ns)

    def _run(
        self, queue: cl.CommandQueue, events: list[Recorded] | None, memory: _Memory, in_stages: bool
    ) -> cl.Event | None:
        """Execute and return the event of the last command, if there is any.

        `events` gets all events, where it is given, but for the only one of a launch without stages.
        """
        prepared = self._prepared
        context = prepared.begin()
        segment: SegmentContext | None = None
        try:
            segment = context.segment(self._segment)
            one_launch = events is None or segment.is_one_launch
            if one_launch and not self._own and segment.complains_in_sight:
                recorded = events if in_stages else None
                return self._run_in_place(segment, queue, recorded, memory.in_place, in_stages=in_stages)
            commands = Commands(queue, self._device.staging, events, in_stages=in_stages)
            self._enqueue(context, segment, commands, memory)
            return events[-1][1] if events else None
        except BaseException:
            queue.finish()  # nothing may write to the caller's memory any more
            raise
        finally:
            if segment is not None and memory is not self._memory:
                segment.let_go(memory.in_place)
            prepared.end(context)

    def _run_in_place(
        self,
        segment: SegmentContext,
        queue: cl.CommandQueue,
        recorded: list[Recorded] | None,
        in_place: Mapping[int, DeviceBuffer],
        *,
        in_stages: bool,
    ) -> cl.Event | None:
        """Execute where nothing is copied; return the last event."""
        fault = segment.fault
        try:
            last = segment.enqueue(queue, in_place, recorded, in_stages=in_stages)
            if last is not None:
                last.wait()
            if fault is not None:
                fault.check_seen()
        except BaseException:
            if fault is not None:
                queue.finish()
                fault.forget()
            raise
        if recorded is not None:
            take_stamps(recorded)
        return last

    def _enqueue(
        self,
        context: ExecutionContext,
        segment: SegmentContext,
        commands: Commands,
        memory: _Memory,
    ) -> None:
        boundary = {i: context.boundary(i, size) for i, size in self._own}
        try:
            for i, data in memory.inputs.items():
                commands.write(boundary[i], data)
            commands.run(segment, {**memory.in_place, **boundary})
            for i, data in memory.outputs.items():
                commands.read(boundary[i], data)
            commands.wait()
        except BaseException:
            commands.abandon()
            raise


class AdaptableExecution(ReusableExecution):
    """A bound request that can have other memory: all of it is used in place, or none.

    It is a TakesOtherMemory. What is not used in place is copied to the device from where it lies.
    """

    def __init__(self, prepared: Prepared, bound: Bound, measure: bool, in_place: Mapping[int, DeviceBuffer]) -> None:
        """Use `reusable`."""
        super().__init__(prepared, bound, measure, in_place)
        self._input_operands = bound.input_operands
        self._output_operands = tuple(bound.outputs)

    def with_memory(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> _Elsewhere:
        """Return the request with other arrays in place of some arguments; raises HalError."""
        # What nothing reads has no operand here.
        given = {self._input_operands[at]: array for at, array in inputs.items() if at in self._input_operands}
        taken = {self._output_operands[place]: array for place, array in outputs.items()}
        memory = self._memory
        if not memory.in_place:
            given, taken = ({i: _as_bytes(array) for i, array in arrays.items()} for arrays in (given, taken))
            return _Elsewhere(self, _Memory({}, {**memory.inputs, **given}, {**memory.outputs, **taken}))
        wrapped = {i: self._device.wrapped(array) for i, array in (given | taken).items()}
        return _Elsewhere(self, _Memory({**memory.in_place, **wrapped}, {}, {}))


class _Elsewhere:
    """A bound request with other memory (IExecution)."""

    __slots__ = ("_bound", "_memory")

    def __init__(self, bound: AdaptableExecution, memory: _Memory) -> None:
        self._bound = bound
        self._memory = memory

    def execute_synchronously(self, deadline_ns: int | None) -> ExecutionResult:
        return self._bound.execute_synchronously(deadline_ns, self._memory)

    def execute_profiled(self, deadline_ns: int | None) -> tuple[ExecutionResult, ExecutionProfile]:
        return self._bound.execute_profiled(deadline_ns, self._memory)


def _as_bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def reusable(prepared: Prepared, bound: Bound, measure: bool) -> ReusableExecution:
    """Return the execution of a bound request; raises HalError where the device has no room."""
    in_place = _in_place(prepared.device, bound)
    is_adaptable = not in_place or in_place.keys() == bound.segment.boundary.keys()
    kind = AdaptableExecution if is_adaptable else ReusableExecution
    return kind(prepared, bound, measure, in_place)


class BindingBurst(PlainBurst):
    """A burst that binds a request when it comes for the second time in a row."""

    def __init__(self, prepared: Prepared) -> None:
        """Bind nothing yet."""
        super().__init__(prepared)
        self._model = prepared
        self._lock = threading.Lock()
        self._latest: tuple[weakref.ref[Request], bool] | None = None
        self._execution: ReusableExecution | None = None
        """Of the latest request, once it has come again."""

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute one request."""
        execution = self._bound_execution(request, measure, loop_timeout_ns)
        if execution is None:
            return super().execute(request, measure, deadline_ns, loop_timeout_ns)
        return execution.execute_synchronously(deadline_ns)

    def _bound_execution(
        self, request: Request, measure: bool, loop_timeout_ns: int | None
    ) -> ReusableExecution | None:
        """Return the request bound if it came the last time, too; memory is freed before that or after."""
        with self._lock:
            latest = self._latest
            if latest is None or latest[0]() is not request or latest[1] != measure:
                self._latest, self._execution = (weakref.ref(request), measure), None
            elif self._execution is None:
                self._execution = self._model.create_reusable_execution(request, measure, loop_timeout_ns)
            return self._execution

    def free_memory(self, memory: SharedMemory) -> None:
        """Forget what is bound."""
        self.close()

    def close(self) -> None:
        """Forget what is bound."""
        with self._lock:
            self._latest = self._execution = None


def _in_place(device: DeviceContext, bound: Bound) -> dict[int, DeviceBuffer]:
    """Return the arguments that the device can use in place: outputs that share no byte with another argument."""
    apart = _apart([*bound.inputs.values(), *bound.outputs.values()], bound.outputs.values())
    if not apart:
        return {}
    found = {i: device.in_place(data, is_written=False) for i, data in bound.inputs.items()}
    found.update((i, device.in_place(data, is_written=True)) for i, data in bound.outputs.items())
    return {i: buffer for i, buffer in found.items() if buffer is not None}


def _apart(arguments: Iterable[Array], written: Iterable[Array]) -> bool:
    """Whether no argument that is written overlaps another."""
    ends = [(data.ctypes.data, data.ctypes.data + data.nbytes) for data in arguments]
    return all(
        sum(first < data.ctypes.data + data.nbytes and data.ctypes.data < last for first, last in ends) == 1
        for data in written
    )
