# SPDX-License-Identifier: Apache-2.0
"""Requests whose arguments are pointers, made fit for drivers that take shared memory alone.

The arrays of a request are copied into one pool before, and out of it after an execution. The pool is kept as long as
the request, so that a request that is executed again costs two copies and nothing else.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import DataLocation, Request
from nn_runtime.operand import size_bytes
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import ExecutionResult, RequestArgument
    from nn_runtime.operand import Array

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Copy:
    """An argument's array and its place in the pool, both uint8 [n]; `index` among the outputs, `type` code or -1."""

    array: Array
    staged: Array
    index: int
    type: int


class Relocation:
    """A request without pointers, and the copies that stand in for them."""

    def __init__(self, request: Request, output_types: Sequence[int]) -> None:
        """`output_types`: operand types of the model's outputs, () where they are not known."""
        self.lock = threading.Lock()
        """Held while the pool is in use."""
        self._inputs: list[_Copy] = []
        self._outputs: list[_Copy] = []
        arguments = (*request.inputs, *request.outputs)
        arrays = [argument.location.pointer for argument in arguments]
        sizes = [0 if array is None else -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
        self._pool = SharedMemory.create(max(1, sum(sizes)))
        staged: Array = self._pool.array()
        moved: list[RequestArgument] = []
        offset = 0
        for position, (argument, array, size) in enumerate(zip(arguments, arrays, sizes, strict=True)):
            if array is None:
                moved.append(argument)
                continue
            place = argument.location
            length = place.length or array.nbytes - place.padding
            location = DataLocation(len(request.pools), offset, length, place.padding)
            moved.append(replace(argument, location=location))
            index = position - len(request.inputs)
            code = output_types[index] if 0 <= index < len(output_types) else -1
            copy = _Copy(array.reshape(-1).view(np.uint8), staged[offset : offset + array.nbytes], index, code)
            (self._inputs if index < 0 else self._outputs).append(copy)
            offset += size
        count = len(request.inputs)
        self.request = Request(tuple(moved[:count]), tuple(moved[count:]), (*request.pools, self._pool))

    def copy_in(self) -> None:
        """Copy the inputs into the pool."""
        for copy in self._inputs:
            copy.staged[:] = copy.array
        for copy in self._outputs:
            if copy.type < 0:
                copy.staged[:] = copy.array  # the size of the result is not known: what is not written comes back

    def copy_out(self, result: ExecutionResult) -> None:
        """Copy the results out of the pool; of an output of smaller size only what it has."""
        for copy in self._outputs:
            length = copy.array.nbytes
            if result.output_shapes and copy.type >= 0:
                length = min(length, size_bytes(copy.type, result.output_shapes[copy.index].dimensions))
            copy.array[:length] = copy.staged[:length]


class Relocator:
    """Keeps the relocations of the requests that are alive."""

    def __init__(self, output_types: Sequence[int]) -> None:
        """`output_types` as in `Relocation`."""
        self._output_types = tuple(output_types)
        self._kept: dict[int, tuple[weakref.ref[Request], Relocation]] = {}

    def of(self, request: Request) -> Relocation | None:
        """Return the relocation of a request, None for one without pointers."""
        known = self._kept.get(id(request))
        if known is not None and known[0]() is request:
            return known[1]
        if all(argument.location.pointer is None for argument in (*request.inputs, *request.outputs)):
            return None
        made = Relocation(request, self._output_types)
        key = id(request)
        kept = self._kept
        kept[key] = weakref.ref(request, lambda _gone: kept.pop(key, None)), made
        return made

    def fresh(self, request: Request) -> Relocation:
        """Return a relocation for one use, while the kept one is in use."""
        return Relocation(request, self._output_types)
