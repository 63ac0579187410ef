# SPDX-License-Identifier: Apache-2.0
"""Steps that move rows as they are, and that fill memory: slices, joins, padding, other orders of dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.chain.step import COPY, FILL, Reading, Step, rows_of
from nn_runtime.operand import FLOAT_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.launch import Kernel

Dimension: TypeAlias = tuple[int, int, int]
"""Of a block that is copied: size, strides in the source and in the destination, in elements."""

_MOST_OUTER = 4
"""Dimensions of rows, as in common/copy_step.h."""
_SHORT_ROW, _LONG_ROW = 8, 1024
_MOST_SHORT_ROWS = 4096
"""Shorter rows, and more of them, are better moved by a launch that knows tiles."""
_FILLED_ROW = 64


def copy_step(
    kernel: Kernel, source: BoundOperand, output: BoundOperand, block: Sequence[Dimension], offsets: tuple[int, int]
) -> Step | None:
    """Return the step that copies a block; None for one that is not made of rows.

    offsets: where the block begins in the source and in the destination, in elements.
    """
    if any(size == 0 for size, _, _ in block):
        return None
    dims = _with_rows_apart([one for one in block if one[0] > 1])
    *outer, (depth, *steps) = dims
    rows = math.prod(size for size, _, _ in outer)
    if len(outer) > _MOST_OUTER or steps != [1, 1] or (depth < _SHORT_ROW and rows > _MOST_SHORT_ROWS):
        return None
    outer = [(1, 0, 0)] * (_MOST_OUTER - len(outer)) + outer
    places = *offsets, *(value for part in zip(*outer, strict=True) for value in part)
    width = source.dimensions[-1] if source.dimensions else 1
    return Step(
        kernel,
        COPY,
        source,
        output,
        None,
        rows_of(rows, depth),
        (np.array(places, np.int32),),
        {},
        0,
        2 * rows * depth * output.size_bytes // output.count,
        reads=Reading(source.count // width, width),
        writes_part=rows * depth < output.count,
    )


def fill_step(kernel: Kernel, output: BoundOperand, value: float) -> Step:
    """Return the step that sets every element, to a value in the output's own dtype."""
    depth = math.gcd(output.count, _FILLED_ROW)
    rows = output.count // depth
    return Step(
        kernel,
        FILL,
        output,
        output,
        None,
        rows_of(rows, depth),
        (np.zeros(1, np.int32),),
        {"low": float(value) if output.type in FLOAT_TYPES else int(value)},
        0,
        output.size_bytes,
        reads=Reading(rows, depth),
    )


def _with_rows_apart(block: Sequence[Dimension]) -> list[Dimension]:
    """Return a block with neighbours merged that lie one after the other on both sides, but rows of a useful length."""
    dims: list[Dimension] = []
    for size, source, destination in reversed(block):
        last = dims[-1] if dims else (1, source, destination)
        dense = (last[1] * last[0], last[2] * last[0]) == (source, destination)
        if not dims:
            dims.append((size, source, destination))
        elif dense and (len(dims) > 1 or last[0] < _SHORT_ROW):
            dims[-1] = size * last[0], last[1], last[2]
        else:
            dims.append((size, source, destination))
    size, source, destination = dims[0] if dims else (1, 1, 1)
    part = next((part for part in range(_LONG_ROW, _SHORT_ROW, -1) if size % part == 0), size)
    if size > _LONG_ROW:
        dims[:1] = [(part, source, destination), (size // part, source * part, destination * part)]
    return dims[::-1] or [(1, 1, 1)]
