# SPDX-License-Identifier: Apache-2.0
"""A model made ready on the CPU: binds requests, runs the graph, writes the outputs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.graph import Frame, Run, agrees, prepare_graph, read_only
from cpu_driver.threads import blas_threads
from nn_runtime.hal.interfaces import ExecutionProfile, ProfileRow
from nn_runtime.hal.plain import FinishedFencedExecution, PlainBurst, earlier_deadline, wait_for_fences
from nn_runtime.hal.references import innermost_first
from nn_runtime.hal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    MAXIMUM_LOOP_TIMEOUT_NS,
    ErrorStatus,
    ExecutionResult,
    HalError,
    OutputShape,
    Timing,
)
from nn_runtime.hal.validation import validate_request
from nn_runtime.hal.views import argument_bytes, typed_array
from nn_runtime.operand import merge_dimensions, size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.buffers import BoundBuffers, BufferRegistry
    from nn_runtime.hal.types import Model, Request, RequestArgument
    from nn_runtime.operand import Array, Dimensions


class HostStorage:
    """Host memory of a managed buffer (Storage)."""

    def __init__(self, size_bytes: int) -> None:
        """Take zeroed memory."""
        self.data = np.zeros(size_bytes, np.uint8)

    def reserve(self, size_bytes: int) -> None:
        """Grow."""
        if size_bytes > self.data.nbytes:
            self.data = np.zeros(size_bytes, np.uint8)

    def read(self, destination: Array) -> None:
        """Copy out."""
        destination[:] = self.data[: destination.nbytes]

    def write(self, source: Array) -> None:
        """Copy in."""
        self.data[: source.nbytes] = source

    def close(self) -> None:
        """Free the memory."""
        self.data = np.zeros(0, np.uint8)


class PreparedModel:
    """A model on the CPU (IPreparedModel, ReportsProfile). Executions at once use a frame each."""

    def __init__(self, model: Model, buffers: BufferRegistry[HostStorage]) -> None:
        """Do the work that all executions share; raises HalError for an operation without a function."""
        self.model = model
        self._buffers = buffers
        self._graph = prepare_graph(model, model.main)
        needed = innermost_first(model.main, model.referenced)
        self._referenced = {number: prepare_graph(model, model.referenced[number]) for number in needed}
        self._idle: list[Frame] = [self._new_frame()]
        self._closed = False
        self._lock = threading.Lock()

    def execute_synchronously(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute and return the shapes; times are always unknown."""
        validate_request(self.model, request)
        return self._execute(request, deadline_ns, loop_timeout_ns, None)

    def execute_profiled(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> tuple[ExecutionResult, ExecutionProfile]:
        """Execute with a row per operation of the main model."""
        validate_request(self.model, request)
        rows: list[ProfileRow] = []
        start_ns = time.perf_counter_ns()
        result = self._execute(request, deadline_ns, loop_timeout_ns, rows)
        return result, ExecutionProfile(tuple(_shifted(row, -start_ns) for row in rows))

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
        validate_request(self.model, request, allow_unspecified_output=False)
        wait_for_fences(wait_for, deadline_ns)
        deadline_ns = earlier_deadline(deadline_ns, duration_after_fence_ns)
        self._execute(request, deadline_ns, loop_timeout_ns, None)
        return None, FinishedFencedExecution(Timing(), Timing())

    def configure_execution_burst(self) -> PlainBurst:
        """Return a burst that executes as usual."""
        return PlainBurst(self)

    def close(self) -> None:
        """Drop the idle frames; executions that run end as usual, later ones are refused."""
        with self._lock:
            self._closed = True
            self._idle.clear()

    def _execute(
        self, request: Request, deadline_ns: int | None, loop_timeout_ns: int | None, rows: list[ProfileRow] | None
    ) -> ExecutionResult:
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")
        buffers = self._buffers.bind(self, request)
        timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if loop_timeout_ns is None else loop_timeout_ns
        try:
            arguments = [self._input(i, request, buffers) for i in range(len(request.inputs))]
            frame = self._take_frame()
            try:
                with np.errstate(all="ignore"), blas_threads:
                    results = frame.execute(arguments, Run(deadline_ns, min(timeout_ns, MAXIMUM_LOOP_TIMEOUT_NS)), rows)
            finally:  # what is kept of constants serves the next run, also after one that came too late
                self._take_back(frame)
            return self._write_outputs(request, buffers, results)
        except BaseException:
            buffers.mark_failed()
            raise

    def _take_frame(self) -> Frame:
        with self._lock:
            if self._closed:
                raise HalError(ErrorStatus.INVALID_ARGUMENT, "the prepared model is closed")
            if self._idle:
                return self._idle.pop()
        return self._new_frame()

    def _take_back(self, frame: Frame) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(frame)

    def _new_frame(self) -> Frame:
        referenced: dict[int, Frame] = {}
        for number, graph in self._referenced.items():  # those that it refers to are there by then
            referenced[number] = Frame(graph, referenced)
        return Frame(self._graph, referenced)

    def _input(self, index: int, request: Request, buffers: BoundBuffers[HostStorage]) -> Array | None:
        """Return an input without copying it, or None if it is omitted."""
        argument = request.inputs[index]
        if argument.has_no_value:
            return None
        operand = self.model.main.operands[self.model.main.input_indexes[index]]
        dims = merge_dimensions(operand.dimensions, argument.dimensions)
        if index in buffers.inputs:
            data, dims = buffers.inputs[index].storage.data, buffers.inputs[index].dimensions
        else:
            data = argument_bytes(argument.location, request.pools)
        return read_only(typed_array(data[: size_bytes(operand.type, dims)], operand.type, dims))

    def _write_outputs(
        self, request: Request, buffers: BoundBuffers[HostStorage], results: Sequence[Array]
    ) -> ExecutionResult:
        """Copy out what fits; raises HalError(OUTPUT_INSUFFICIENT_SIZE) with all shapes if something does not."""
        shapes = []
        for i, (argument, array) in enumerate(zip(request.outputs, results, strict=True)):
            _check_wanted(i, argument.dimensions, array.shape)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            if i in buffers.outputs:
                _check_wanted(i, buffers.outputs[i].initial_dimensions, array.shape)
                buffers.outputs[i].storage.reserve(data.nbytes)
                buffers.outputs[i].storage.write(data)
                sufficient = True
            else:
                sufficient = argument.has_no_value or _copy_out(data, argument, request)
            shapes.append(OutputShape(array.shape, sufficient))
        short = [i for i, shape in enumerate(shapes) if not shape.is_sufficient]
        if short:
            at = short[0]
            message = f"output {at}: {results[at].nbytes} bytes {list(results[at].shape)} do not fit the buffer"
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, message, tuple(shapes))
        for i, buffer in buffers.outputs.items():
            buffer.mark_written(results[i].shape)
        return ExecutionResult(tuple(shapes))


def _check_wanted(index: int, wanted: Dimensions, dims: Dimensions) -> None:
    """Check computed dimensions of an output against those asked for."""
    if wanted and not agrees(wanted, dims):
        message = f"output {index}: the request says {list(wanted)}, computed {list(dims)}"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message)


def _copy_out(data: Array, argument: RequestArgument, request: Request) -> bool:
    """Write an output into its buffer; return False if it does not fit."""
    destination = argument_bytes(argument.location, request.pools)
    if data.nbytes > destination.nbytes:
        return False
    destination[: data.nbytes] = data
    return True


def _shifted(row: ProfileRow, by_ns: int) -> ProfileRow:
    return ProfileRow(row.operations, row.kernel, row.start_ns + by_ns, row.end_ns + by_ns, row.bytes_moved)
