# SPDX-License-Identifier: Apache-2.0
"""Data movement as one kernel file: blocks of elements between strided tensors (TRANSPOSE, slices, joins, padding)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Kernel, Launch, Scratch, int32, int_vector
from gpu_driver.vectors import per_item
from gpu_driver.worksize import linear
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Packed, Scalar
    from nn_runtime.operand import Dimensions

MAX_DIMENSIONS = 8
_SHORTEST_ROW = 8
_ITEMS_PER_CORE = 4
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
    sizes, source, destination = _merge(sizes, source, destination)
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"a strided copy has at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    if table is None and _has_rows(sizes, source, destination, device):
        return _copy_rows(sizes, source, destination, device)
    count = math.prod(sizes)
    item_bytes = _item_bytes(source, destination)
    global_size, local_size = linear(count, device)
    arguments = (
        source.operand,
        destination.operand,
        int32(source.offset),
        int32(destination.offset),
        int8_vector(sizes, 1),
        int8_vector(source.strides, 0),
        int8_vector(destination.strides, 0),
        int32(count),
    )
    return Launch(
        _kernel("strided_copy" if table is None else "strided_lookup", item_bytes),
        arguments if table is None else (*arguments, table),
        global_size,
        local_size,
        bytes_moved=2 * count * item_bytes,
    )


def _has_rows(sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile) -> bool:
    """Whether strided_copy_rows fits: a work-item is a loop on a CPU, and there are runs enough to loop over."""
    runs = len(sizes) > 1 and source.strides[-1] == destination.strides[-1] == 1
    items = _ITEMS_PER_CORE * device.compute_units
    return device.is_cpu and runs and sizes[-1] >= _SHORTEST_ROW and math.prod(sizes[:-1]) >= items


def _copy_rows(sizes: Sequence[int], source: Side, destination: Side, device: DeviceProfile) -> Launch:
    item_bytes = _item_bytes(source, destination)
    rows, inner = math.prod(sizes[:-1]), sizes[-1]
    item_rows = per_item(rows, device, inner)
    return Launch(
        _kernel("strided_copy_rows", item_bytes),
        (
            source.operand,
            destination.operand,
            int32(source.offset),
            int32(destination.offset),
            int8_vector(sizes[:-1], 1),
            int8_vector(source.strides[:-1], 0),
            int8_vector(destination.strides[:-1], 0),
            *(int32(value) for value in (rows, inner, item_rows)),
        ),
        (-(-rows // item_rows),),
        (1,),
        bytes_moved=2 * rows * inner * item_bytes,
    )


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
    return fill_memory(output, output.count, value, dtype_of(output.type), device)


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
