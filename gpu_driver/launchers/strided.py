# SPDX-License-Identifier: Apache-2.0
"""Data movement as one kernel file: blocks of elements between strided tensors (TRANSPOSE, slices, joins, padding)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain.elementwise import joinable
from gpu_driver.kernel import Kernel, Scratch, int32, int_vector
from gpu_driver.launch import Launch
from gpu_driver.launchers.vectors import LANES, per_item
from gpu_driver.launchers.worksize import linear, round_up
from nn_runtime.operand import dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Packed, Scalar
    from nn_runtime.operand import Dimensions

MAX_DIMENSIONS = 8
_SHORTEST_ROW = 8
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


def dense_strides(dims: Dimensions) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major tensor."""
    return tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))


def image_strides(height: int, width: int, depth: int, nchw: bool) -> tuple[int, int, int, int]:
    """Return the strides of (batch, y, x, channel) in elements."""
    image = height * width * depth
    return (image, width, 1, height * width) if nchw else (image, width * depth, depth, 1)


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
        if table is not None:
            return _copy_rows(sizes, source, destination, device, table)
        return joinable(_copy_moved(sizes, source, destination, device), step)
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


def _copy_moved(sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile) -> Launch:
    """Return the launch for a CPU: by tiles where either side has a long dimension of stride 1 of its own."""
    columns = [at for at, size in enumerate(sizes) if size >= LANES and source.strides[at] == 1]
    lines = [at for at, size in enumerate(sizes) if size >= LANES and destination.strides[at] == 1]
    if columns and lines and columns[0] != lines[0]:
        return _copy_tiles(sizes, source, destination, (columns[0], lines[0]), device)
    return _copy_rows(sizes, source, destination, device)


def _copy_tiles(
    sizes: Sequence[int], source: Side, destination: Side, at: tuple[int, int], device: DeviceProfile
) -> Launch:
    """Return the launch of strided_copy_tiles; `at`: the dimensions of stride 1 in the source and the destination."""
    (columns, lines), item_bytes = (sizes[i] for i in at), _item_bytes(source, destination)
    tile = int_vector(columns, lines, destination.strides[at[0]], source.strides[at[1]])
    item_lines = round_up(per_item(lines, device, LANES), LANES)
    rest, *sides = _left_over((sizes, source, destination), at)
    count = math.prod(sizes)
    return Launch(
        _kernel("strided_copy_tiles", item_bytes),
        (*_block(rest, *sides), tile, int32(item_lines)),
        (-(-columns // LANES), -(-lines // item_lines), math.prod(rest)),
        (1, 1, 1),
        bytes_moved=2 * count * item_bytes,
    )


def _copy_rows(
    sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile, table: Packed | None = None
) -> Launch:
    """Return the launch of strided_copy_rows or strided_lookup_rows."""
    item_bytes, at = _item_bytes(source, destination), _row_dimension(sizes, source, destination)
    inner, steps = (sizes[at], (source.strides[at], destination.strides[at])) if sizes else (1, (1, 1))
    rest, *sides = _left_over((sizes, source, destination), (at,))
    rows = math.prod(rest)
    item_rows = per_item(rows, device, inner)
    item_inner = inner if -(-rows // item_rows) > 1 else per_item(inner, device, rows)
    kernel = "strided_copy_rows" if table is None else "strided_lookup_rows"
    return Launch(
        _kernel(kernel, item_bytes),
        (
            *_block(rest, *sides),
            int_vector(*steps),
            *(int32(value) for value in (rows, inner, item_rows, item_inner)),
            *(() if table is None else (table,)),
        ),
        (-(-rows // item_rows), -(-inner // item_inner)),
        (1, 1),
        bytes_moved=2 * rows * inner * item_bytes,
    )


def _row_dimension(sizes: Sequence[int], source: Side, destination: Side) -> int:
    """Return the dimension to loop over: the last where it is a run of some length on both sides, else the longest.

    If there is one of some length that is a run on one side, then of those: others go to another cache line every time.
    """
    last = len(sizes) - 1
    if sizes and source.strides[last] == destination.strides[last] == 1 and sizes[last] >= _SHORTEST_ROW:
        return last
    is_run = [1 in pair for pair in zip(source.strides, destination.strides, strict=True)]
    runs = [at for at, size in enumerate(sizes) if size >= _SHORTEST_ROW and is_run[at]]
    return max(runs or range(len(sizes)), key=lambda at: sizes[at], default=0)


def _left_over(block: tuple[Sequence[int], Side, Side], taken: Sequence[int]) -> tuple[Sequence[int], Side, Side]:
    """Return a block without some dimensions."""
    sizes, source, destination = block
    kept = [at for at in range(len(sizes)) if at not in taken]
    sides = (replace(side, strides=tuple(side.strides[at] for at in kept)) for side in (source, destination))
    return [sizes[at] for at in kept], *sides  # type: ignore[return-value]


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
