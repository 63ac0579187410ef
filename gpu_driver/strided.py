# SPDX-License-Identifier: Apache-2.0
"""Data movement as one kernel: blocks of elements between strided tensors (TRANSPOSE, slices, joins, padding)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launch import Kernel, Launch, int32
from gpu_driver.worksize import linear
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Scalar
    from nn_runtime.operand import Dimensions

MAX_DIMENSIONS = 8
_UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint"}


def dense_strides(dims: Dimensions) -> list[int]:
    """Return the strides in elements of a dense row-major tensor."""
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]


def int8_vector(values: Sequence[int], fill: int) -> Scalar:
    """Return an `int8` kernel argument, `values` at its end and `fill` before them."""
    padded = [fill] * (MAX_DIMENSIONS - len(values)) + list(values)
    vector: Scalar = np.array(padded, np.int32).view(np.dtype((np.void, 4 * MAX_DIMENSIONS)))[0]
    return vector


def strided_copy(
    source: BoundOperand,
    destination: BoundOperand,
    sizes: Sequence[int],
    source_strides: Sequence[int],
    destination_strides: Sequence[int],
    device: DeviceProfile,
    source_offset: int = 0,
    destination_offset: int = 0,
) -> Launch:
    """Return the launch that copies a block of `sizes` elements; strides and offsets in elements.

    Neighbouring dimensions that are contiguous on both sides are merged first.
    """
    merged = _merge(list(sizes), list(source_strides), list(destination_strides))
    sizes, source_strides, destination_strides = merged
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"a strided copy has at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    count = math.prod(sizes)
    item_bytes = dtype_of(source.type).itemsize
    global_size, local_size = linear(count, device)
    return Launch(
        Kernel("strided_copy.cl", "strided_copy", (("T", _UNSIGNED[item_bytes]),)),
        (
            source,
            destination,
            int32(source_offset),
            int32(destination_offset),
            int8_vector(sizes, 1),
            int8_vector(source_strides, 0),
            int8_vector(destination_strides, 0),
            int32(count),
        ),
        global_size,
        local_size,
        bytes_moved=2 * count * item_bytes,
    )


def _merge(
    sizes: list[int], source_strides: list[int], destination_strides: list[int]
) -> tuple[list[int], list[int], list[int]]:
    out: tuple[list[int], list[int], list[int]] = ([], [], [])
    for size, source, destination in zip(sizes, source_strides, destination_strides, strict=True):
        if size == 1:
            continue
        if out[0] and out[1][-1] == source * size and out[2][-1] == destination * size:
            out[0][-1] *= size
            out[1][-1], out[2][-1] = source, destination
        else:
            out[0].append(size)
            out[1].append(source)
            out[2].append(destination)
    return out
