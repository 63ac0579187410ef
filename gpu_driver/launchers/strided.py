# SPDX-License-Identifier: Apache-2.0
"""Data movement as one kernel file: blocks of elements between strided tensors (TRANSPOSE, slices, joins, padding)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain.elementwise import joinable
from gpu_driver.kernel import Kernel, Scratch, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.splits.vectors import LANES, per_item
from gpu_driver.splits.worksize import linear, round_up
from nn_runtime.operand import dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Packed, Scalar

MAX_DIMENSIONS = 8
_SHORTEST_ROW, _SHORTEST_RUN_BYTES = 4, 4
_FEW = (2, 3, 4, 8)
"""Lines that strided_copy_lines takes."""
_WIDEST_BYTES = 4
_UNSIGNED: dict[int, tuple[str, type[np.unsignedinteger]]] = {
    1: ("uchar", np.uint8),
    2: ("ushort", np.uint16),
    4: ("uint", np.uint32),
}


@dataclass(frozen=True)
class Side:
    """A strided block in a tensor: strides by dimension of the block, and where it starts; in elements.

    One side of a copy at most is scratch memory; the other tells the size of an element.
    """

    operand: BoundOperand | Scratch
    strides: tuple[int, ...]
    offset: int = 0


def int8_vector(values: Sequence[int], fill: int) -> Scalar:
    """Return an `int8` argument, `values` at its end and `fill` before them."""
    return int_vector(*[fill] * (MAX_DIMENSIONS - len(values)), *values)


def strided_copy(
    sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile, table: Packed | None = None
) -> Launch:
    """Return the launch that copies a block of `sizes` elements, through a 256-entry table where one is given.

    Neighbouring dimensions that are contiguous on both sides are merged first; more than 8 left raise ValueError.
    """
    step = None if table is not None else _step(sizes, source, destination, device)
    sizes, source, destination = _merge(sizes, source, destination)
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"a strided copy has at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    if device.is_cpu:
        block = _Moved(sizes, source, destination, _item_bytes(source, destination))
        return _copy_rows(block, device, table) if table is not None else joinable(_copy_moved(block, device), step)
    count = math.prod(sizes)
    item_bytes = _item_bytes(source, destination)
    global_size, local_size = linear(count, device)
    arguments = (*_block(sizes, source, destination), int32(count))
    return Launch(
        _kernel("strided_copy" if table is None else "strided_lookup", item_bytes),
        arguments if table is None else (*arguments, table),
        global_size,
        local_size,
        bytes_moved=2 * count * item_bytes,
    )


def _step(sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile) -> chain.Step | None:
    """Return what takes the place of a copy between operands in a chain, None where it does not fit in."""
    taken, made = source.operand, destination.operand
    operands = [one for one in (made, taken) if not isinstance(one, Scratch)]
    kernel = chain.step_kernel(operands[0], device) if operands else None
    if kernel is None or len({one.type for one in operands}) > 1:
        return None
    block = list(zip(sizes, source.strides, destination.strides, strict=True))
    return chain.copy_step(kernel, taken, made, operands[-1], block, (source.offset, destination.offset))


def _block(sizes: Sequence[int], source: Side, destination: Side) -> tuple[Argument, ...]:
    """Return the arguments from `src` to `dst_strides`."""
    return (
        source.operand,
        destination.operand,
        int32(source.offset),
        int32(destination.offset),
        int8_vector(sizes, 1),
        int8_vector(source.strides, 0),
        int8_vector(destination.strides, 0),
    )


@dataclass(frozen=True)
class _Moved:
    """A block whose neighbours are merged, and the size of its elements."""

    sizes: Sequence[int]
    source: Side
    destination: Side
    item_bytes: int

    @property
    def strides(self) -> list[tuple[int, int]]:
        """Of each dimension, in the source and in the destination."""
        return list(zip(self.source.strides, self.destination.strides, strict=True))

    def without(self, *taken: int) -> _Moved:
        """Return it without some dimensions."""
        kept = [at for at in range(len(self.sizes)) if at not in taken]
        source, destination = (
            replace(side, strides=tuple(side.strides[at] for at in kept)) for side in (self.source, self.destination)
        )
        return replace(self, sizes=[self.sizes[at] for at in kept], source=source, destination=destination)

    def widened(self) -> _Moved:
        """Return it in the largest elements, of four bytes at most, that lie together on both sides."""
        sides = self.source, self.destination
        others = [value for side in sides for value in (*side.strides[:-1], side.offset)]
        is_run = self.strides[-1:] == [(1, 1)]
        by = math.gcd(_WIDEST_BYTES // self.item_bytes, self.sizes[-1], *others) if is_run else 1
        if by == 1:
            return self
        source, destination = (
            replace(side, strides=(*(stride // by for stride in side.strides[:-1]), 1), offset=side.offset // by)
            for side in sides
        )
        merged = _merge([*self.sizes[:-1], self.sizes[-1] // by], source, destination)
        return _Moved(*merged, by * self.item_bytes)


def _copy_moved(block: _Moved, device: DeviceProfile) -> Launch:
    """Return the launch for a CPU: by tiles where either side has a long dimension of stride 1 of its own."""
    block = block.widened()
    columns = [at for at, size in enumerate(block.sizes) if size >= LANES and block.source.strides[at] == 1]
    lines = [at for at, size in enumerate(block.sizes) if size >= LANES and block.destination.strides[at] == 1]
    if columns and lines and columns[0] != lines[0]:
        return _copy_tiles(block, columns[0], lines[0], device)
    few = next((pair for pair in itertools.permutations(range(len(block.sizes)), 2) if _are_few(block, *pair)), None)
    return _copy_rows(block, device) if few is None else _copy_lines(block, *few, device)


def _copy_tiles(block: _Moved, columns: int, lines: int, device: DeviceProfile) -> Launch:
    """Return the launch of strided_copy_tiles; columns, lines: the dimensions of stride 1 in source and destination."""
    width, height = block.sizes[columns], block.sizes[lines]
    tile = int_vector(width, height, block.destination.strides[columns], block.source.strides[lines])
    item_lines = round_up(per_item(height, device, LANES), LANES)
    rest = block.without(columns, lines)
    return Launch(
        _kernel("strided_copy_tiles", block.item_bytes),
        (*_block(rest.sizes, rest.source, rest.destination), tile, int32(item_lines)),
        (-(-width // LANES), -(-height // item_lines), math.prod(rest.sizes)),
        (1, 1, 1),
        bytes_moved=2 * math.prod(block.sizes) * block.item_bytes,
    )


def _are_few(block: _Moved, along: int, across: int) -> bool:
    """Whether strided_copy_lines takes the dimension `across` for lines: neighbours on one side, between the others."""
    few, (along_strides, across_strides) = block.sizes[across], (block.strides[at] for at in (along, across))
    dense = (1, few) if across_strides[1] == 1 else (few, 1)
    return few in _FEW and block.sizes[along] >= LANES and along_strides == dense and 1 in across_strides


def _copy_lines(block: _Moved, along: int, across: int, device: DeviceProfile) -> Launch:
    """Return the launch of strided_copy_lines."""
    few, strides, rest = block.sizes[across], block.strides[across], block.without(along, across)
    line_stride = strides[0] if strides[1] == 1 else strides[1]
    more = int32(few), int32(line_stride)
    return _by_rows("strided_copy_lines", rest, block.sizes[along], block.strides[along], device, more, few)


def _copy_rows(block: _Moved, device: DeviceProfile, table: Packed | None = None) -> Launch:
    """Return the launch of strided_copy_rows or strided_lookup_rows."""
    at = _row_dimension(block)
    inner, steps = (block.sizes[at], block.strides[at]) if block.sizes else (1, (1, 1))
    kernel, more = ("strided_copy_rows", ()) if table is None else ("strided_lookup_rows", (table,))
    return _by_rows(kernel, block.without(at), inner, steps, device, more)


def _by_rows(
    kernel: str,
    rest: _Moved,
    inner: int,
    steps: tuple[int, int],
    device: DeviceProfile,
    more: tuple[Argument, ...],
    lines: int = 1,
) -> Launch:
    """Return the launch of a kernel that goes through rows of `inner`, of so many lines."""
    rows = math.prod(rest.sizes)
    item_rows = per_item(rows, device, inner * lines)
    item_inner = inner if -(-rows // item_rows) > 1 else round_up(per_item(inner, device, rows * lines), LANES)
    return Launch(
        _kernel(kernel, rest.item_bytes),
        (
            *_block(rest.sizes, rest.source, rest.destination),
            int_vector(*steps),
            *(int32(value) for value in (rows, inner, item_rows, item_inner)),
            *more,
        ),
        (-(-rows // item_rows), -(-inner // item_inner)),
        (1, 1),
        bytes_moved=2 * rows * inner * lines * rest.item_bytes,
    )


def _row_dimension(block: _Moved) -> int:
    """Return the dimension to loop over: the last where it is a run on both sides, else the longest that is one on one.

    Others go to another cache line every time. Where there is no such of some length, it is the longest.
    """
    if block.strides[-1:] == [(1, 1)] and block.sizes[-1] * block.item_bytes >= _SHORTEST_RUN_BYTES:
        return len(block.sizes) - 1
    runs = [at for at, size in enumerate(block.sizes) if size >= _SHORTEST_ROW and 1 in block.strides[at]]
    return max(runs or range(len(block.sizes)), key=lambda at: block.sizes[at], default=0)


def strided_copies(sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile) -> tuple[Launch, ...]:
    """Return launches that copy a block of any rank.

    Where more than 8 dimensions are left after merging, there is one launch for each index of the shortest.
    """
    sizes, source, destination = _merge(sizes, source, destination)
    if len(sizes) <= MAX_DIMENSIONS:
        return (strided_copy(sizes, source, destination, device),)
    at = sizes.index(min(sizes))
    rest = sizes[:at] + sizes[at + 1 :]
    return tuple(
        launch
        for i in range(sizes[at])
        for launch in strided_copies(rest, _without(source, at, i), _without(destination, at, i), device)
    )


def fill(output: BoundOperand, value: float, device: DeviceProfile) -> Launch:
    """Return the launch that sets every element to `value`, given in the output's own dtype."""
    launch = fill_memory(output, output.count, value, dtype_of(output.type), device)
    kernel = chain.step_kernel(output, device)
    return launch if kernel is None else joinable(launch, chain.fill_step(kernel, output, value))


def fill_memory(
    memory: BoundOperand | Scratch, count: int, value: float, dtype: np.dtype[np.generic], device: DeviceProfile
) -> Launch:
    """Return the launch that sets `count` elements of a dtype to `value`."""
    bits: Scalar = np.array([value], dtype).view(_UNSIGNED[dtype.itemsize][1])[0]
    global_size, local_size = linear(count, device)
    return Launch(
        _kernel("fill", dtype.itemsize),
        (memory, bits, int32(count)),
        global_size,
        local_size,
        bytes_moved=count * dtype.itemsize,
    )


def raw_type(operand: BoundOperand) -> str:
    """Return the unsigned OpenCL type of an element's size, for kernels that move bits as they are."""
    return _UNSIGNED[dtype_of(operand.type).itemsize][0]


def widest_type(operand: BoundOperand, count: int) -> tuple[str, int]:
    """Return the largest such type, of 4 bytes at most, in which `count` elements fit evenly, and its elements.

    For CPUs, which read it wherever an element may lie.
    """
    item_bytes = dtype_of(operand.type).itemsize
    by = math.gcd(_WIDEST_BYTES // item_bytes, count)
    return _UNSIGNED[by * item_bytes][0], by


def _kernel(name: str, item_bytes: int) -> Kernel:
    return Kernel("strided_copy.cl", name, (("T", _UNSIGNED[item_bytes][0]),))


def _item_bytes(source: Side, destination: Side) -> int:
    operand = destination.operand if isinstance(source.operand, Scratch) else source.operand
    if isinstance(operand, Scratch):
        raise ValueError("a strided copy needs an operand on one side")
    return dtype_of(operand.type).itemsize


def _without(side: Side, at: int, index: int) -> Side:
    """Return a side with one dimension fixed at an index."""
    strides = side.strides[:at] + side.strides[at + 1 :]
    return replace(side, strides=strides, offset=side.offset + index * side.strides[at])


def _merge(sizes: Sequence[int], source: Side, destination: Side) -> tuple[list[int], Side, Side]:
    kept: list[int] = []
    inner: list[tuple[int, int]] = []
    for size, *strides in zip(sizes, source.strides, destination.strides, strict=True):
        pair = (strides[0], strides[1])
        if size == 1:
            continue
        if kept and inner[-1] == (pair[0] * size, pair[1] * size):
            kept[-1] *= size
            inner[-1] = pair
        else:
            kept.append(size)
            inner.append(pair)
    return (
        kept,
        replace(source, strides=tuple(pair[0] for pair in inner)),
        replace(destination, strides=tuple(pair[1] for pair in inner)),
    )
