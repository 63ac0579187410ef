# SPDX-License-Identifier: Apache-2.0
"""Two broadcast inputs as broadcast.cl takes them: dimensions merged, 8-bit values by tables of 256 integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.kernel import Kernel, Packed, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import MAX_DIMENSIONS, int8_vector
from gpu_driver.splits.vectors import LANES, c_type, defines, per_item, work_sizes
from gpu_driver.splits.worksize import linear
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from gpu_driver.launch import WorkSize
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.operations import OperationView

_Walk: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]"


@dataclass(frozen=True)
class Broadcast:
    """The output's dimensions with neighbours merged and size 1 left out, and both inputs' strides (0: broadcast)."""

    sizes: tuple[int, ...]
    strides0: tuple[int, ...]
    strides1: tuple[int, ...]

    def fits_rows(self, device: DeviceProfile) -> bool:
        """Whether kernels that loop over rows fit: a work-item is a loop on a CPU, or a row holds a vector."""
        return device.is_cpu or (bool(self.sizes) and self.sizes[-1] >= LANES)

    def by_rows(self, device: DeviceProfile) -> tuple[_Walk, tuple[Argument, ...], tuple[WorkSize, WorkSize]]:
        """Return sizes and strides without the innermost dimension; what such kernels take of it; global and local.

        The innermost strides are 0 or 1 anyway. Arguments: rows, inner, step0, step1, per_item, rows_per_item.
        """
        outer = self.sizes[:-1], self.strides0[:-1], self.strides1[:-1]
        inner, step0, step1 = (self.sizes[-1], self.strides0[-1], self.strides1[-1]) if self.sizes else (1, 0, 0)
        rows = math.prod(outer[0])
        vectors = -(-inner // LANES)
        item_vectors = per_item(vectors, device, LANES)
        item_rows = per_item(rows, device, inner)
        sizes = work_sizes(-(-vectors // item_vectors), device, -(-rows // item_rows))
        return outer, tuple(int32(value) for value in (rows, inner, step0, step1, item_vectors, item_rows)), sizes


def broadcast(first: Dimensions, second: Dimensions, output: Dimensions) -> Broadcast:
    """Return how both inputs are walked through in the order of the output."""
    sizes: list[int] = []
    strides: list[tuple[int, int]] = []
    aligned = (_broadcast_strides(dims, output) for dims in (first, second))
    for size, stride0, stride1 in zip(output, *aligned, strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == (stride0 * size, stride1 * size):
            sizes[-1] *= size
            strides[-1] = stride0, stride1
        else:
            sizes.append(size)
            strides.append((stride0, stride1))
    return Broadcast(tuple(sizes), tuple(pair[0] for pair in strides), tuple(pair[1] for pair in strides))


def refuse_pair(op: OperationView, _device: DeviceProfile) -> str:
    """Return why broadcast.cl cannot walk through two inputs whose dimensions are known, or ""."""
    first, second = (operand.dimensions for operand in op.inputs[:2])
    return broadcast_refusal(first, second) if first and second and 0 not in (*first, *second) else ""


def broadcast_refusal(first: Dimensions, second: Dimensions) -> str:
    """Return why broadcast.cl cannot walk through two inputs that broadcast, or ""."""
    rank = max(len(first), len(second))
    padded = ((1,) * (rank - len(dims)) + dims for dims in (first, second))
    output = tuple(max(pair) for pair in zip(*padded, strict=True))
    found = len(broadcast(first, second, output).sizes)
    if found <= MAX_DIMENSIONS:
        return ""
    return f"the inputs broadcast over {found} dimensions, the kernel over at most {MAX_DIMENSIONS}"


def _broadcast_strides(dims: Dimensions, output: Dimensions) -> list[int]:
    missing = len(output) - len(dims)
    pairs = zip(dims, dense_strides(dims), strict=True)
    return [0] * missing + [0 if size == 1 else stride for size, stride in pairs]


def pairwise(
    kernel: str,
    operands: tuple[BoundOperand, BoundOperand, BoundOperand],
    extra: tuple[Argument, ...],
    device: DeviceProfile,
    tables: tuple[Array, Array] | None = None,
) -> Launch:
    """Return the launch of a kernel of broadcast.cl on (first, second, output).

    `tables`: for one-byte inputs, the int32 [256] value of each byte of either; booleans need none. Raises BadData
    where dimensions that do not merge are more than 8.
    """
    first, second, output = operands
    shape = broadcast(first.dimensions, second.dimensions, output.dimensions)
    reason = broadcast_refusal(first.dimensions, second.dimensions)
    if reason:
        raise BadData(reason)
    types = _types(first) if tables is None else (("T", "uchar"), ("TABLES", 1))
    values = () if tables is None else tuple(Packed(table.astype(np.int32)) for table in tables)
    moved = first.size_bytes + second.size_bytes + output.size_bytes
    if not shape.fits_rows(device):
        walk = int8_vector(shape.sizes, 1), int8_vector(shape.strides0, 0), int8_vector(shape.strides1, 0)
        return Launch(
            Kernel("broadcast.cl", kernel, types),
            (*operands, *values, *walk, int32(output.count), *extra),
            *linear(output.count, device),
            flops=output.count,
            bytes_moved=moved,
        )
    rows, arguments, sizes = shape.by_rows(device)
    walk = int8_vector(rows[0], 1), int8_vector(rows[1], 0), int8_vector(rows[2], 0)
    return Launch(
        Kernel("broadcast.cl", f"{kernel}_rows", (*types, *defines(device))),
        (*operands, *values, *walk, *arguments, *extra),
        *sizes,
        flops=output.count,
        bytes_moved=moved,
    )


def _types(operand: BoundOperand) -> tuple[tuple[str, str | int], ...]:
    if operand.type == OperandCode.TENSOR_BOOL8:
        return ("T", "uchar"), ("TRUTHS", 1)
    return (("T", c_type(operand)),)
