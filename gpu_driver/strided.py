# SPDX-License-Identifier: Apache-2.0
"""Data movement as one kernel file: blocks of elements between strided tensors (TRANSPOSE, slices, joins, padding)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Kernel, Launch, int32, int_vector
from gpu_driver.worksize import linear
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Packed, Scalar
    from nn_runtime.operand import Dimensions

MAX_DIMENSIONS = 8
_UNSIGNED: dict[int, tuple[str, type[np.unsignedinteger]]] = {
    1: ("uchar", np.uint8),
    2: ("ushort", np.uint16),
    4: ("uint", np.uint32),
}


@dataclass(frozen=True)
class Side:
    """A strided block in a tensor: strides by dimension of the block, and where it starts; in elements."""

    operand: BoundOperand
    strides: tuple[int, ...]
    offset: int = 0


def dense_strides(dims: Dimensions) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major tensor."""
    return tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))


def _int8(values: Sequence[int], fill: int) -> Scalar:
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
    count = math.prod(sizes)
    item_bytes = dtype_of(source.operand.type).itemsize
    global_size, local_size = linear(count, device)
    arguments = (
        source.operand,
        destination.operand,
        int32(source.offset),
        int32(destination.offset),
        _int8(sizes, 1),
        _int8(source.strides, 0),
        _int8(destination.strides, 0),
        int32(count),
    )
    return Launch(
        _kernel("strided_copy" if table is None else "strided_lookup", item_bytes),
        arguments if table is None else (*arguments, table),
        global_size,
        local_size,
        bytes_moved=2 * count * item_bytes,
    )


def fill(output: BoundOperand, value: float, device: DeviceProfile) -> Launch:
    """Return the launch that sets every element to `value`, given in the output's own dtype."""
    dtype = dtype_of(output.type)
    bits: Scalar = np.array([value], dtype).view(_UNSIGNED[dtype.itemsize][1])[0]
    global_size, local_size = linear(output.count, device)
    return Launch(
        _kernel("fill", dtype.itemsize),
        (output, bits, int32(output.count)),
        global_size,
        local_size,
        bytes_moved=output.size_bytes,
    )


def _kernel(name: str, item_bytes: int) -> Kernel:
    return Kernel("strided_copy.cl", name, (("T", _UNSIGNED[item_bytes][0]),))


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
