# SPDX-License-Identifier: Apache-2.0
"""Requests of operation examples, as VTS makes them: inputs in one pool, outputs in another, or in driver's buffers."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.hal.memory import HardwareBuffer, SharedMemory
from nn_runtime.hal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    Request,
    RequestArgument,
)
from nn_runtime.hal.versions.served_model import ServedPreparedModel13
from nn_runtime.hal.versions.server import Served13
from nn_runtime.operand import dtype_of, element_count
from nn_runtime.testing.corpus import judge

if TYPE_CHECKING:
    from nn_runtime.hal.versions.served_buffer import ServedBuffer
    from nn_runtime.hal.versions.served_model import ServedPreparedModel10
    from nn_runtime.hal.versions.server import Served10
    from nn_runtime.operand import Array
    from nn_runtime.testing.corpus import Example
    from tests.nn_runtime.hal.vts.client import Outcome

ALIGNMENT = 64
INPUTS, OUTPUTS, FIRST_BUFFER = 0, 1, 2


class Storage(Enum):
    """Where arguments lie."""

    SHARED = "shared memory"
    BLOB = "hardware buffers"
    DEVICE = "driver's buffers"


class Arguments:
    """The request of an example; `buffers` are the driver's, by argument (whether it is an output, index)."""

    def __init__(
        self,
        example: Example,
        storage: Storage = Storage.SHARED,
        driver: Served10 | None = None,
        prepared: ServedPreparedModel10 | None = None,
    ) -> None:
        self._example = example
        self._driver, self._prepared = driver, prepared
        self.buffers: dict[tuple[bool, int], ServedBuffer] = {}
        self._tokens: list[int] = []
        self._sizes = [0, 0]
        in_device = storage == Storage.DEVICE
        inputs = tuple(
            RequestArgument(has_no_value=True) if data is None else self._argument(False, i, data.nbytes, in_device)
            for i, data in enumerate(example.inputs)
        )
        outputs = tuple(
            self._argument(True, i, max(1, self._size_bytes(i)), in_device) for i in range(len(example.outputs))
        )
        make = HardwareBuffer if storage == Storage.BLOB else SharedMemory.create
        self.pools = [make(max(1, size)) for size in self._sizes]
        self.request = Request(inputs, outputs, (*self.pools, *map(BufferToken, self._tokens)))
        for i, data in enumerate(example.inputs):
            if not inputs[i].has_no_value and data is not None:
                self._place(inputs[i].location, np.ascontiguousarray(data), i)

    def problem(self, outcome: Outcome) -> str:
        """Return what is wrong with the shapes and values of a successful execution ("" if nothing)."""
        shapes = [shape.dimensions for shape in outcome.shapes] or [out.dimensions for out in self._example.outputs]
        if len(shapes) != len(self._example.outputs) or not all(shape.is_sufficient for shape in outcome.shapes):
            return f"wrong shapes: {outcome.shapes}"
        problems = (judge(self._example, i, dims, self._output(i)) for i, dims in enumerate(shapes))
        return next((problem for problem in problems if problem), "")

    def clear(self) -> None:
        """Overwrite the outputs."""
        self.pools[OUTPUTS].array()[:] = 0xA5

    def shortened(self) -> Request | None:
        """Return the request with the first output one byte too small; None where it has one byte at most."""
        first, *others = self.request.outputs
        if self._size_bytes(0) <= 1:
            return None
        location = replace(first.location, length=first.location.length - 1)
        return replace(self.request, outputs=(replace(first, location=location), *others))

    def _argument(self, is_output: bool, index: int, size: int, in_device: bool) -> RequestArgument:
        if in_device and self._allocate(is_output, index):
            return RequestArgument(location=DataLocation(pool_index=FIRST_BUFFER + len(self._tokens) - 1))
        pool = OUTPUTS if is_output else INPUTS
        offset = self._sizes[pool]
        self._sizes[pool] += -(-size // ALIGNMENT) * ALIGNMENT
        return RequestArgument(location=DataLocation(pool, offset, size))

    def _allocate(self, is_output: bool, index: int) -> bool:
        assert isinstance(self._driver, Served13)
        assert isinstance(self._prepared, ServedPreparedModel13)
        role = [BufferRole(0, index, 1.0)]
        inputs, outputs = ([], role) if is_output else (role, [])
        status, buffer, token = self._driver.allocate(BufferDesc(), [self._prepared], inputs, outputs)
        if status != ErrorStatus.NONE:
            assert (status, buffer, token) == (ErrorStatus.GENERAL_FAILURE, None, 0)
            return False
        assert buffer is not None
        assert token > 0
        self.buffers[is_output, index] = buffer  # type: ignore[assignment]
        self._tokens.append(token)
        return True

    def _place(self, location: DataLocation, data: Array, index: int) -> None:
        octets = data.reshape(-1).view(np.uint8)
        buffer = self.buffers.get((False, index))
        if buffer is None:
            self.pools[INPUTS].array()[location.offset : location.offset + octets.size] = octets
            return
        memory = SharedMemory.create(octets.size)
        memory.array()[:] = octets
        assert buffer.copy_from(memory, ()) == ErrorStatus.NONE

    def _output(self, index: int) -> Array:
        code, size = self._type(index), self._size_bytes(index)
        buffer = self.buffers.get((True, index))
        if buffer is None:
            offset = self.request.outputs[index].location.offset
            return self.pools[OUTPUTS].array()[offset : offset + size].view(dtype_of(code))
        if size == 0:
            return np.zeros(0, dtype_of(code))
        memory = SharedMemory.create(size)
        assert buffer.copy_to(memory) == ErrorStatus.NONE
        return memory.array().view(dtype_of(code))

    def _type(self, index: int) -> int:
        return self._example.main.operands[self._example.main.outputs[index]].type

    def _size_bytes(self, index: int) -> int:
        return element_count(self._example.outputs[index].dimensions) * dtype_of(self._type(index)).itemsize
