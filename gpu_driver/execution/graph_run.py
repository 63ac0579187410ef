# SPDX-License-Identifier: Apache-2.0
"""One execution of a subgraph: segment after segment, with IF and WHILE between them.

Values stay on the device. Read back are only parameters that later operations are lowered by, the sizes that an
operation finds out about its outputs, and one bool for every decision.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyopencl as cl

from gpu_driver.device.pinned import staging_of
from gpu_driver.execution.recorded import Referred, Transfer, take_stamps
from gpu_driver.lowering import Known
from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.views import typed_array
from nn_runtime.operand import dtype_of, element_count, is_tensor, merge_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.pinned import PinnedStaging
    from gpu_driver.execution.compiled_graph import CompiledGraph
    from gpu_driver.execution.compiled_segment import CompiledSegment
    from gpu_driver.execution.execution_context import ExecutionContext
    from gpu_driver.execution.fault_number import FaultNumber
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.execution.segment_context import SegmentContext
    from gpu_driver.kernel import Scratch
    from gpu_driver.lowering import MeasuredOutputs
    from nn_runtime.operand import Array, Dimensions


class Commands:
    """What one execution enqueues. `recorded`: every command and its event, where they are wanted.

    `in_stages`: each operation of a launch of several is timed: by the launch, or enqueued apart.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        staging: PinnedStaging | None,
        recorded: list[Recorded] | None,
        *,
        in_stages: bool = False,
    ) -> None:
        """Enqueue nothing yet; `staging` is the device's."""
        self.queue = queue
        self._staging = staging
        self._recorded = recorded
        self._in_stages = in_stages
        self._transfers: list[cl.Event] = []
        """Of host memory: their events keep it."""
        self._last: cl.Event | None = None
        self._taken = 0
        """Of the recorded ones, how many were looked through for times that the host can copy."""
        self._suspects: set[FaultNumber] = set()
        """Those of segments that may have complained since somebody looked."""

    def run(self, segment: SegmentContext, boundary: dict[int, DeviceBuffer]) -> None:
        """Enqueue a segment's commands."""
        if segment.fault is not None:
            self._suspects.add(segment.fault)  # before: a launch may complain, and the enqueuing of the next one fail
        self._last = segment.enqueue(self.queue, boundary, self._recorded, in_stages=self._in_stages) or self._last

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        """Enqueue a copy to the device."""
        data = np.ascontiguousarray(data)
        staging = staging_of(self._staging, data.nbytes)
        if staging is None:
            self._keep(Transfer("write", data.nbytes), buffer.write(self.queue, data))
        else:
            staging.write(self.queue, buffer, data, partial(self._keep_part, "write", object()))

    def read(self, buffer: DeviceBuffer, data: Array) -> None:
        """Enqueue a copy to the host; a large one may be waited for at once."""
        staging = staging_of(self._staging, data.nbytes)
        if staging is None:
            self._keep(Transfer("read", data.nbytes), buffer.read(self.queue, data))
        else:
            staging.read(self.queue, buffer, data, partial(self._keep_part, "read", object()))

    def read_scratch(self, segment: SegmentContext, scratch: Scratch) -> list[int]:
        """Wait for int32 scratch memory of a segment and return it."""
        data = np.empty(scratch.size_bytes // 4, np.int32)
        self._keep(Transfer("read", data.nbytes), segment.read_scratch(self.queue, scratch, data))
        self.wait()
        return [int(value) for value in data]

    def copy(self, source: DeviceBuffer, destination: DeviceBuffer, size_bytes: int) -> None:
        """Enqueue a copy on the device."""
        if source is not destination and size_bytes:
            event = cl.enqueue_copy(self.queue, destination.handle, source.handle, byte_count=size_bytes)
            self._keep(Transfer("copy", size_bytes), event)

    @contextmanager
    def referred_by(self, operations: tuple[int, ...]) -> Iterator[None]:
        """Record what is enqueued inside as commands of a graph that these operations refer to."""
        recorded = [] if self._recorded is None else self._recorded
        first = len(recorded)
        yield
        recorded[first:] = [(Referred(operations, command), event) for command, event in recorded[first:]]

    def wait(self) -> None:
        """Wait for the last command, thereby for all of them, and for nobody else's later ones.

        Raises HalError(GENERAL_FAILURE) where a launch complained.
        """
        if not self._suspects:
            self._wait_for_last()
            return
        found = [(fault, np.zeros(1, np.int32) if fault.seen is None else fault.seen) for fault in self._suspects]
        for fault, number in found:
            if number is not fault.seen:
                self.read(fault.buffer, number)
        self._wait_for_last()
        for fault, number in found:
            fault.check(int(number[0]))
        self._suspects.clear()

    def abandon(self) -> None:
        """Wait until nothing that was enqueued runs any more, and leave no complaint to a later execution."""
        try:
            for fault in self._suspects:
                if fault.seen is None:
                    self.write(fault.buffer, np.zeros(1, np.int32))
        finally:
            self.queue.finish()
            for fault in self._suspects:
                fault.forget()

    def _wait_for_last(self) -> None:
        if self._last is not None:
            self._last.wait()
            self._transfers.clear()
        if self._in_stages and self._recorded is not None:
            take_stamps(self._recorded[self._taken :])
            self._taken = len(self._recorded)

    def _keep_part(self, name: str, array: object, size_bytes: int, event: cl.Event) -> None:
        self._keep(Transfer(name, size_bytes, array), event)

    def _keep(self, transfer: Transfer, event: cl.Event) -> None:
        self._transfers.append(event)
        self._last = event
        if self._recorded is not None:
            self._recorded.append((transfer, event))


@dataclass(frozen=True)
class Limits:
    """When an execution must have ended, and how long a loop may run."""

    deadline_ns: int | None
    loop_timeout_ns: int

    def check(self, what: str) -> None:
        """Raise HalError(MISSED_DEADLINE_TRANSIENT) once the deadline has passed."""
        if self.deadline_ns is not None and time.monotonic_ns() >= self.deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"the deadline passed before {what}")


@dataclass(frozen=True)
class Value:
    """A value on the device; `known` is its data where the host has it."""

    dimensions: Dimensions
    memory: DeviceBuffer
    known: Array | None = None


class Ends(Protocol):
    """Where the inputs of a graph come from and its outputs go, by place in its lists."""

    def input_dimensions(self, place: int) -> Dimensions | None:
        """Return the dimensions given for an input, 0 where they are not stated; None if it is left out."""

    def input_data(self, place: int, size_bytes: int) -> Array | None:
        """Return the bytes of an input where the host has them."""

    def input_memory(self, place: int) -> DeviceBuffer | None:
        """Return an input's memory where it is on the device already."""

    def output_memory(self, place: int, size_bytes: int) -> DeviceBuffer | None:
        """Return where an output shall be written, None for memory of the execution's own."""

    def outputs_known(self, dimensions: Sequence[Dimensions]) -> None:
        """Take the dimensions of all outputs, as early as they are known; raises HalError if they do not suit."""


class GraphRun:
    """One execution of a subgraph in one context."""

    def __init__(
        self,
        graph: CompiledGraph,
        context: ExecutionContext,
        commands: Commands,
        ends: Ends,
        limits: Limits,
        graphs: Mapping[int, CompiledGraph],
    ) -> None:
        """Take what the execution works with; `graphs` are those that operations refer to, by number."""
        self._graph = graph
        self._context = context
        self._commands = commands
        self._ends = ends
        self._limits = limits
        self._graphs = graphs
        self._memory: dict[int, DeviceBuffer] = {}
        """Boundary memory by operand: that of the inputs is written."""

    def run(self) -> list[Value]:
        """Enqueue everything, waiting only for what must be read back, and return the outputs."""
        try:
            return self._run()
        except BaseException:
            self._memory.clear()  # whoever keeps the error keeps this object
            raise

    def _run(self) -> list[Value]:
        static = self._graph.static
        places = range(len(self._graph.subgraph.input_indexes))
        if static is not None and all(self._ends.input_dimensions(place) is not None for place in places):
            return self._whole(static)
        known = self._known()
        at, told = 0, False
        while at < self._graph.lowering.operation_count:
            self._limits.check(self._graph.lowering.label(at))
            if self._graph.lowering.is_control_flow(at):
                known, at = self._decide(at, known), at + 1
                continue
            compiled = self._graph.compiled(at, known)
            segment = compiled.segment
            if segment.stop == at and not segment.parameters:
                raise HalError(
                    ErrorStatus.GENERAL_FAILURE, f"{self._graph.lowering.label(at)}: its parameters are not known"
                )
            if segment.stop == self._graph.lowering.operation_count and segment.measured is None:
                self._ends.outputs_known([segment.dimensions[i] for i in self._graph.subgraph.output_indexes])
                told = True
            self._enqueue(compiled)
            values = dict(known.values)
            for operand in segment.parameters:
                values[operand] = self._read_back(operand, segment.dimensions[operand])
            known = Known(segment.dimensions, values, known.omitted, segment.done_ahead, known.found)
            if segment.measured is not None:
                known = known.with_found(self._measured(compiled, segment.measured))
            at = segment.stop
        if not told:
            self._ends.outputs_known([known.dimensions[i] for i in self._graph.subgraph.output_indexes])
        return [self._value(i, known) for i in self._graph.subgraph.output_indexes]

    def _whole(self, compiled: CompiledSegment) -> list[Value]:
        """Enqueue the segment that is all of the graph and return the outputs."""
        dimensions = compiled.segment.dimensions
        self._ends.outputs_known([dimensions[i] for i in self._graph.subgraph.output_indexes])
        self._enqueue(compiled)
        return [self._value(i, Known(dimensions, {})) for i in self._graph.subgraph.output_indexes]

    def _known(self) -> Known:
        """Return the dimensions of every input, the values of those that are parameters, and the omitted ones."""
        dimensions = dict(self._graph.lowering.static_inputs().dimensions)
        values: dict[int, Array] = {}
        omitted: set[int] = set()
        for operand, place in self._graph.input_places.items():
            given = self._ends.input_dimensions(place)
            if given is None:
                omitted.add(operand)
                continue
            dims = merge_dimensions(self._graph.subgraph.operands[operand].dimensions, given)
            dimensions[operand] = dims
            if operand in self._graph.parameters:
                values[operand] = self._input_value(operand, place, dims)
        return Known(dimensions, values, frozenset(omitted))

    def _input_value(self, operand: int, place: int, dims: Dimensions) -> Array:
        data = self._ends.input_data(place, self._size_bytes(operand, dims))
        if data is None:
            return self._read_back(operand, dims)
        return typed_array(data, self._graph.subgraph.operands[operand].type, dims)

    def _enqueue(self, compiled: CompiledSegment) -> None:
        bound = self._context.segment(compiled)
        boundary = {operand: self._bind(operand, size_bytes) for operand, size_bytes in compiled.boundary.items()}
        self._commands.run(bound, boundary)

    def _bind(self, operand: int, size_bytes: int) -> DeviceBuffer:
        """Return a boundary operand's memory; an input from the host is written to it at its first use."""
        found = self._memory.get(operand)
        if found is None:
            found = self._memory[operand] = self._find_memory(operand, size_bytes)
        return found

    def _find_memory(self, operand: int, size_bytes: int) -> DeviceBuffer:
        place = self._graph.input_places.get(operand)
        if place is not None:
            memory = self._ends.input_memory(place)
            if memory is not None:
                return memory
            own = self._context.boundary(operand, size_bytes)
            data = self._ends.input_data(place, size_bytes) if size_bytes else None
            if data is not None:
                self._commands.write(own, data)
            return own
        place = self._graph.output_places.get(operand)
        memory = None if place is None else self._ends.output_memory(place, size_bytes)
        return self._context.boundary(operand, size_bytes) if memory is None else memory

    def _value(self, operand: int, known: Known) -> Value:
        """Return an operand's value: of a constant too."""
        constant = self._graph.constant(operand)
        if constant is not None:
            data, memory = constant
            return Value(data.shape, memory, data)
        dims = known.dimensions[operand]
        return Value(dims, self._bind(operand, self._size_bytes(operand, dims)), known.values.get(operand))

    def _read_back(self, operand: int, dims: Dimensions) -> Array:
        data = np.empty(self._size_bytes(operand, dims), np.uint8)
        if data.nbytes:
            self._commands.read(self._bind(operand, data.nbytes), data)
            self._commands.wait()
        return typed_array(data, self._graph.subgraph.operands[operand].type, dims)

    def _measured(self, compiled: CompiledSegment, measured: MeasuredOutputs) -> dict[int, Dimensions]:
        """Read what a segment found out about its last operation's outputs; raises HalError if the inputs are wrong."""
        size, wrong = self._commands.read_scratch(self._context.segment(compiled), measured.status)
        if wrong:
            raise HalError(ErrorStatus.GENERAL_FAILURE, measured.problem)
        found = {operand: (size, *dims[1:]) for operand, dims in measured.greatest.items()}
        self._check_declared(compiled.segment.stop - 1, found)
        return found

    def _check_declared(self, at: int, found: dict[int, Dimensions]) -> None:
        for operand, dims in found.items():
            try:
                self._graph.lowering.check_declared(operand, dims)
            except BadData as error:
                label = self._graph.lowering.label(at)
                raise HalError(ErrorStatus.GENERAL_FAILURE, f"{label}: {error}") from error

    def _size_bytes(self, operand: int, dims: Dimensions) -> int:
        return element_count(dims) * dtype_of(self._graph.subgraph.operands[operand].type).itemsize

    # Control flow

    def _decide(self, at: int, known: Known) -> Known:
        """Execute an IF or WHILE; return what is known then."""
        operation = self._graph.subgraph.operations[at]
        execute = self._if if operation.type == OperationCode.IF else self._while
        with self._commands.referred_by(self._graph.lowering.origins(at)):
            found = dict(zip(operation.outputs, execute(at, known), strict=True))
        self._check_declared(
            at, {i: dims for i, dims in found.items() if is_tensor(self._graph.subgraph.operands[i].type)}
        )
        return known.with_found(found)

    def _if(self, at: int, known: Known) -> list[Dimensions]:
        operation = self._graph.subgraph.operations[at]
        condition, then_model, else_model, *arguments = operation.inputs
        branch = then_model if self._truth(self._value(condition, known)) else else_model

        def write_to(place: int, size_bytes: int) -> DeviceBuffer:
            return self._bind(operation.outputs[place], size_bytes)

        values = self._refer(branch, self._arguments(arguments, known), (at, branch), write_to)
        return [value.dimensions for value in values]

    def _while(self, at: int, known: Known) -> list[Dimensions]:
        operation = self._graph.subgraph.operations[at]
        condition, body, *arguments = operation.inputs
        values = self._arguments(arguments, known)
        start_ns = time.monotonic_ns()
        turn = 0
        while self._truth(self._refer(condition, values, (at, condition), None)[0]):
            label = self._graph.lowering.label(at)
            self._limits.check(label)
            if time.monotonic_ns() - start_ns > self._limits.loop_timeout_ns:
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"{label}: the loop timed out")
            # A turn reads what the one before wrote, so that they write to two places in turn.
            memory = self._context.child((at, "turns", turn % 2)).boundary
            results = self._refer(body, values, (at, body), memory)
            values[: len(results)] = results
            turn += 1
        dimensions = []
        for operand, value in zip(operation.outputs, values, strict=False):
            if value is None:
                raise HalError(ErrorStatus.GENERAL_FAILURE, f"{self._graph.lowering.label(at)}: an output has no value")
            size_bytes = self._size_bytes(operand, value.dimensions)
            self._commands.copy(value.memory, self._bind(operand, size_bytes), size_bytes)
            dimensions.append(value.dimensions)
        return dimensions

    def _arguments(self, operands: Sequence[int], known: Known) -> list[Value | None]:
        return [
            self._value(i, known) if i in known.dimensions or self._graph.lowering.constant(i) is not None else None
            for i in operands
        ]

    def _refer(
        self,
        model: int,
        arguments: Sequence[Value | None],
        key: object,
        write_to: Callable[[int, int], DeviceBuffer] | None,
    ) -> list[Value]:
        """Run the graph that a MODEL operand refers to and return its outputs."""
        graph = self._graphs[self._graph.subgraph.operands[model].location.offset]
        ends = _Arguments(arguments, write_to)
        return GraphRun(graph, self._context.child(key), self._commands, ends, self._limits, self._graphs).run()

    def _truth(self, condition: Value) -> bool:
        if condition.known is not None:
            return bool(condition.known.reshape(-1)[0])
        data = np.empty(1, np.uint8)
        self._commands.read(condition.memory, data)
        self._commands.wait()
        return bool(data[0])


class _Arguments:
    """The ends of a referenced graph: values of the graph around it."""

    def __init__(self, arguments: Sequence[Value | None], write_to: Callable[[int, int], DeviceBuffer] | None) -> None:
        self._arguments = arguments
        self._write_to = write_to

    def input_dimensions(self, place: int) -> Dimensions | None:
        argument = self._arguments[place]
        return None if argument is None else argument.dimensions

    def input_data(self, place: int, size_bytes: int) -> Array | None:
        argument = self._arguments[place]
        if argument is None or argument.known is None:
            return None
        return np.ascontiguousarray(argument.known).reshape(-1).view(np.uint8)

    def input_memory(self, place: int) -> DeviceBuffer | None:
        argument = self._arguments[place]
        return None if argument is None else argument.memory

    def output_memory(self, place: int, size_bytes: int) -> DeviceBuffer | None:
        return None if self._write_to is None else self._write_to(place, size_bytes)

    def outputs_known(self, dimensions: Sequence[Dimensions]) -> None:
        """Any will do: the operation checks them."""
