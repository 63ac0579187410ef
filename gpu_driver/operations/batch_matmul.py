# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.chain.multiplying import multiply_steps
from gpu_driver.convolution.tiled import batches_launch
from gpu_driver.kernel import Kernel, Scratch, int_vector
from gpu_driver.launch import Launch, Steps
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import LANES, c_type
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.batch_matmul import batch_matmul_sizes
from nn_runtime.quantization import convolution_multipliers

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize
    from nn_runtime.operations.batch_matmul import BatchMatmul

_TILE_ROWS = 8
"""At most, in batch_matmul.cl."""
_DOT_ROWS = 4
"""At most, for which a right side of rows is multiplied as it is: of more, laying it out as columns is repaid."""


@launches(OperationCode.BATCH_MATMUL)
def batch_matmul(op: BoundOperation, device: DeviceProfile) -> Steps | tuple[Launch, ...]:
    """BATCH_MATMUL. FLOAT32, FLOAT16, QUANT8_ASYMM_SIGNED, INT32; kernels of `tiled.py`, else batch_matmul.cl."""
    sizes = batch_matmul_sizes(op)
    lhs, rhs, output = op.input("lhs"), op.input("rhs"), op.outputs[0]
    by_groups = batches_launch(lhs, rhs, output, sizes, device)
    if by_groups is not None:
        return (by_groups,)
    kernel_of_steps = chain.step_kernel(output, device)
    if kernel_of_steps is not None and output.type == OperandCode.TENSOR_FLOAT32 and not sizes.adj_x:
        return Steps(multiply_steps(kernel_of_steps, lhs, rhs, output, sizes))
    rows, columns, depth = sizes.rows, sizes.columns, sizes.depth
    left = (1, rows) if sizes.adj_x else (depth, 1)
    right = (1, depth) if sizes.adj_y else (columns, 1)
    kernel, tile_rows = "batch_matmul", _TILE_ROWS
    right_memory: BoundOperand | Scratch = rhs
    before: tuple[Launch, ...] = ()
    work: tuple[WorkSize, WorkSize] = linear(output.count, device)
    if _fits_tiles(sizes, device) and sizes.adj_y and not sizes.adj_x and rows <= _DOT_ROWS and depth >= LANES:
        kernel, work = "batch_matmul_dots", ((-(-columns // LANES), sizes.batches), (1, 1))
    elif _fits_tiles(sizes, device):
        kernel, tile_rows = "batch_matmul_tiles", _tile_rows(rows)
        work = (-(-columns // _tile_columns(tile_rows)), -(-rows // tile_rows), sizes.batches), (1, 1, 1)
        if sizes.adj_y:
            scratch = Scratch(rhs.size_bytes)
            before = (_transposed(rhs, scratch, sizes, device),)
            right_memory, right = scratch, (columns, 1)
    mantissa = exponent = 0
    if op.data_type in QUANT8_TYPES:
        mantissa, exponent = (int(part[0]) for part in convolution_multipliers(lhs, rhs, output))
    product = Launch(
        Kernel("batch_matmul.cl", kernel, (("T", c_type(output)), *_narrower(tile_rows))),
        (
            *(lhs, right_memory, output),
            int_vector(rows * depth, *left, 0),
            int_vector(depth * columns, *right, 0),
            int_vector(sizes.batches, rows, columns, depth),
            int_vector(lhs.zero_point, rhs.zero_point, output.zero_point, 0),
            int_vector(mantissa, exponent),
        ),
        *work,
        flops=2 * output.count * depth,
        bytes_moved=lhs.size_bytes + rhs.size_bytes + output.size_bytes,
    )
    return *before, product


def _fits_tiles(sizes: BatchMatmul, device: DeviceProfile) -> bool:
    """Whether batch_matmul_tiles applies: a work-item is a loop on a CPU, and a row of the output holds a vector."""
    return device.is_cpu and sizes.columns >= LANES


def _tile_rows(rows: int) -> int:
    """Return the rows of a tile, a power of two: no more than hold the rows there are."""
    return min(_TILE_ROWS, 1 << (rows - 1).bit_length())


def _tile_columns(tile_rows: int) -> int:
    """Return TILE_COLUMNS of batch_matmul.cl."""
    return LANES * min(4, _TILE_ROWS // tile_rows)


def _narrower(tile_rows: int) -> tuple[tuple[str, int], ...]:
    """Return the define of tiles of fewer rows."""
    return (("TILE_ROWS", tile_rows),) if tile_rows < _TILE_ROWS else ()


def _transposed(rhs: BoundOperand, memory: Scratch, sizes: BatchMatmul, device: DeviceProfile) -> Launch:
    """Return the launch that lays the right side out as [batches, depth, columns]."""
    columns, depth = sizes.columns, sizes.depth
    source = Side(rhs, (depth * columns, 1, depth))
    return strided_copy(
        (math.prod(sizes.leading), depth, columns), source, Side(memory, (depth * columns, columns, 1)), device
    )
