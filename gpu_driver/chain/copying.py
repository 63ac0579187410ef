# SPDX-License-Identifier: Apache-2.0
"""Steps that move rows as they are, and that fill memory: slices, joins, padding, other orders of dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Reading, Step, rows_of
from nn_runtime.operand import FLOAT_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Memory
    from gpu_driver.kernel import Kernel

Dimension: TypeAlias = tuple[int, int, int]
"""Of a block that is copied: size, strides in the source and in the destination, in elements."""

_MOST_OUTER = 4
"""Dimensions of rows, as in common/copy_step.h."""
_SHORT_ROW, _LONG_ROW = 8, 1024
_MOST_SHORT_ROWS = 4096
"""Shorter rows, and more of them, are better moved by a launch that knows tiles."""
_FILLED_ROW = 64
_TURNED_COLUMNS, _TURNED_LINES = 16, 256
"""Parts of matrices that are turned at once, as in common/copy_step.h."""


def copy_step(
    kernel: Kernel,
    source: Memory,
    output: Memory,
    like: BoundOperand,
    block: Sequence[Dimension],
    offsets: tuple[int, int],
) -> Step | None:
    """Return the step that copies a block; None for one that a launch of its own moves better.

    like: an operand of the elements' type and the source's depth. offsets: where the block begins in the source and in
    the destination, in elements.
    """
    # Rows come in the order in which they are written: who reads them waits for those that it needs by their numbers.
    block = sorted((one for one in block if one[0] > 1), key=lambda one: -one[2])
    kind, rows, depth, places = _rows(block, offsets) or _turned(block, offsets) or (Kind.COPY, 0, 0, ())
    if not places:
        return None
    count = math.prod(size for size, _, _ in block)
    item_bytes = like.size_bytes // like.count
    width = like.dimensions[-1] if like.dimensions else 1
    return Step(
        kernel,
        kind,
        source,
        output,
        geometry=rows_of(rows, depth),
        constants=(np.array(places, np.int32),),
        bytes_moved=2 * count * item_bytes,
        reads=Reading(source.size_bytes // item_bytes // width, width),
        writes_part=count * item_bytes < output.size_bytes,
    )


_Moved: TypeAlias = tuple[Kind, int, int, tuple[int, ...]]
"""Kind of step, rows, their length, and their places as copy_step.h takes them."""


def _rows(block: Sequence[Dimension], offsets: tuple[int, int]) -> _Moved | None:
    """Return a block as rows that lie densely on both sides; None for another."""
    *outer, (depth, *steps) = _with_rows_apart(block)
    rows = math.prod(size for size, _, _ in outer)
    if len(outer) > _MOST_OUTER or steps != [1, 1] or (depth < _SHORT_ROW and rows > _MOST_SHORT_ROWS):
        return None
    return Kind.COPY, rows, depth, _places(outer, offsets)


def _turned(block: Sequence[Dimension], offsets: tuple[int, int]) -> _Moved | None:
    """Return a block as matrices, best such whose columns become rows; None for one of too many dimensions."""
    dims = _merged(block)
    columns = next((one for one in dims if one[1] == 1), dims[-1])
    others = [one for one in dims if one is not columns]
    lines = max(others, key=lambda one: (one[2] == 1, one[0]), default=(1, 1, 1))
    outer = [one for one in others if one is not lines]
    if len(outer) > _MOST_OUTER:
        return None
    parts = -(-columns[0] // _TURNED_COLUMNS), -(-lines[0] // _TURNED_LINES)
    rows = math.prod(size for size, _, _ in outer) * math.prod(parts)
    length = min(columns[0], _TURNED_COLUMNS) * min(lines[0], _TURNED_LINES)
    return Kind.TURN, rows, length, (*_places(outer, offsets), *columns, *lines, *parts)


def _places(outer: Sequence[Dimension], offsets: tuple[int, int]) -> tuple[int, ...]:
    """Return the fields of Block in copy_step.h."""
    outer = [*[(1, 0, 0)] * (_MOST_OUTER - len(outer)), *outer]
    return *offsets, *(value for part in zip(*outer, strict=True) for value in part)


def fill_step(kernel: Kernel, output: BoundOperand, value: float) -> Step:
    """Return the step that sets every element, to a value in the output's own dtype."""
    depth = math.gcd(output.count, _FILLED_ROW)
    rows = output.count // depth
    return Step(
        kernel,
        Kind.FILL,
        output,
        output,
        geometry=rows_of(rows, depth),
        values={"low": float(value) if output.type in FLOAT_TYPES else int(value)},
        bytes_moved=output.size_bytes,
        reads=Reading(rows, depth),
    )


def _merged(block: Sequence[Dimension]) -> list[Dimension]:
    """Return a block with neighbours merged that lie one after the other on both sides."""
    dims: list[Dimension] = []
    for size, source, destination in reversed(block):
        if dims and (dims[-1][1] * dims[-1][0], dims[-1][2] * dims[-1][0]) == (source, destination):
            dims[-1] = size * dims[-1][0], dims[-1][1], dims[-1][2]
        else:
            dims.append((size, source, destination))
    return dims[::-1] or [(1, 1, 1)]


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
