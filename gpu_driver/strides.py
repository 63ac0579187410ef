# SPDX-License-Identifier: Apache-2.0
"""Where the elements of tensors and of blocks in them lie, in elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions


def dense_strides(dims: Dimensions) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major tensor."""
    return tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))


def image_strides(height: int, width: int, depth: int, nchw: bool) -> tuple[int, int, int, int]:
    """Return the strides of (batch, y, x, channel) in elements."""
    image = height * width * depth
    return (image, width, 1, height * width) if nchw else (image, width * depth, depth, 1)


def block_of(places: Array) -> list[tuple[int, int]] | None:
    """Return (size, stride) of the dimensions of a block, in row-major order, whose elements have such places [count].

    None for places that are no block, and for negative ones beside others.
    """
    block: list[tuple[int, int]] = []
    rest = places.astype(np.int64)
    while rest.size > 1:
        steps = np.diff(rest)
        changes = np.flatnonzero(steps != steps[0])
        size = int(changes[0]) + 1 if changes.size else rest.size
        if rest.size % size:
            return None
        rows = rest.reshape(-1, size)
        if not (np.diff(rows, axis=1) == steps[0]).all():
            return None
        block.append((size, int(steps[0])))
        rest = rows[:, 0]
    return block[::-1] if places.size and ((places < 0).all() or (places >= 0).all()) else None
