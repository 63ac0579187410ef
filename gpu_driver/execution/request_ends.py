# SPDX-License-Identifier: Apache-2.0
"""The ends of a model's main graph: the arguments of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.hal.types import ErrorStatus, HalError, OutputShape
from nn_runtime.hal.views import argument_bytes
from nn_runtime.operand import dtype_of, element_count, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.storage import DeviceStorage
    from gpu_driver.execution.compiled_graph import CompiledGraph
    from gpu_driver.execution.graph_run import Commands, Value
    from nn_runtime.hal.buffers import BoundBuffers
    from nn_runtime.hal.types import Request
    from nn_runtime.operand import Array, Dimensions


class RequestEnds:
    """The ends of the main graph: a request (Ends)."""

    def __init__(self, graph: CompiledGraph, request: Request, buffers: BoundBuffers[DeviceStorage]) -> None:
        """Read the outputs' places; nothing is checked."""
        self._graph = graph
        self._request = request
        self._buffers = buffers
        self.host_outputs = {
            i: argument_bytes(argument.location, request.pools)
            for i, argument in enumerate(request.outputs)
            if not argument.has_no_value and i not in buffers.outputs
        }
        """Bytes by index of output, those that are wanted on the host."""
        self.shapes: tuple[OutputShape, ...] = ()

    def input_dimensions(self, place: int) -> Dimensions | None:
        """Return what the request says, None for an omitted input."""
        argument, buffer = self._request.inputs[place], self._buffers.inputs.get(place)
        if argument.has_no_value:
            return None
        return argument.dimensions if buffer is None else buffer.dimensions

    def input_data(self, place: int, size_bytes: int) -> Array | None:
        """Return the bytes of an input in host memory, without padding.

        Raises HalError where they are too few: an array may have shrunk since the request was checked.
        """
        if place in self._buffers.inputs:
            return None
        data = argument_bytes(self._request.inputs[place].location, self._request.pools)
        if data.nbytes < size_bytes:
            message = f"input {place}: needs {size_bytes} bytes, got {data.nbytes}"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, message)
        return data[:size_bytes]

    def input_memory(self, place: int) -> DeviceBuffer | None:
        """Return the buffer of an input that a driver-managed one is."""
        buffer = self._buffers.inputs.get(place)
        return None if buffer is None else buffer.storage.buffer

    def output_memory(self, place: int, size_bytes: int) -> DeviceBuffer | None:
        """Return the buffer of an output that a driver-managed one is, with room for it."""
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
            dims, room = self.shapes[short[0]].dimensions, self.host_outputs[short[0]].nbytes
            message = f"output {short[0]}: {list(dims)} does not fit a buffer of {room} bytes"
            raise HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, message, self.shapes)

    def finish(self, outputs: Sequence[Value], commands: Commands) -> None:
        """Read the outputs that are wanted on the host and wait for all."""
        for i, data in self.host_outputs.items():
            size_bytes = self._size_bytes(i, outputs[i].dimensions)
            if size_bytes:
                commands.read(outputs[i].memory, data[:size_bytes])
        commands.wait()
        for i, buffer in self._buffers.outputs.items():
            buffer.mark_written(outputs[i].dimensions)

    def _shape(self, i: int, dims: Dimensions) -> OutputShape:
        wanted, buffer = self._request.outputs[i].dimensions, self._buffers.outputs.get(i)
        if buffer is not None:
            wanted = merge_dimensions(wanted, buffer.initial_dimensions)
        if wanted and (len(wanted) != len(dims) or any(w not in (0, d) for w, d in zip(wanted, dims, strict=True))):
            message = f"output {i}: the request says {list(wanted)}, computed {list(dims)}"
            raise HalError(ErrorStatus.GENERAL_FAILURE, message)
        host = self.host_outputs.get(i)
        return OutputShape(dims, host is None or self._size_bytes(i, dims) <= host.nbytes)

    def _size_bytes(self, i: int, dims: Dimensions) -> int:
        operand = self._graph.subgraph.operands[self._graph.subgraph.output_indexes[i]]
        return element_count(dims) * dtype_of(operand.type).itemsize
