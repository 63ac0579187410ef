# SPDX-License-Identifier: Apache-2.0
"""Memory of results that callers get as it is, without a copy."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

_LINE_BYTES = 64
_KEPT = 2
"""Blocks for a caller that holds one result while the next is computed."""


class ResultMemory:
    """Makes the arrays of one output. The memory of those that nobody holds any more is used again."""

    def __init__(self, dimensions: Dimensions, dtype: np.dtype[np.generic]) -> None:
        """Take nothing yet."""
        self._dimensions = dimensions
        self._dtype = dtype
        self._bytes = ctypes.c_byte * (math.prod(dimensions) * dtype.itemsize)
        self._blocks: list[tuple[memoryview, weakref.ref[ctypes.Array[ctypes.c_byte]]]] = []
        """Memory, and the object through which alone the latest array of it, and whatever looks at that, reach it."""

    def new_array(self) -> Array:
        """Return an array of any content, whose memory nobody else has before it is gone, and every view of it."""
        blocks = self._blocks
        free = next((at for at, (_, latest) in enumerate(blocks) if latest() is None), None)
        if free is not None:
            memory = blocks.pop(free)[0]
        else:
            memory = self._new_block()
            del blocks[_KEPT - 1 :]
        access = self._bytes.from_buffer(memory)
        blocks.insert(0, (memory, weakref.ref(access)))
        array: Array = np.ndarray(self._dimensions, self._dtype, cast("memoryview", access))
        return array

    def _new_block(self) -> memoryview:
        size_bytes = ctypes.sizeof(self._bytes)
        room = np.empty(size_bytes + _LINE_BYTES, np.uint8)
        start = -room.ctypes.data % _LINE_BYTES
        return room[start : start + size_bytes].data
