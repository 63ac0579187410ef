# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.convolution.tiled import batches_launch
from gpu_driver.kernel import Kernel, Scratch, int_vector
from gpu_driver.launch import Launch, Steps
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.launchers.vectors import LANES, c_type
from gpu_driver.launchers.worksize import linear
from gpu_driver.operations import launches
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.batch_matmul import batch_matmul_sizes
from nn_runtime.quantization import convolution_multipliers

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import WorkSize
    from nn_runtime.operations.batch_matmul import BatchMatmul
    from nn_runtime.operations.sliding_window import SlidingWindow

_TILE_ROWS = 8
"""As in batch_matmul.cl."""


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
        return _packed_steps(op, sizes, kernel_of_steps)
    rows, columns, depth = sizes.rows, sizes.columns, sizes.depth
    left = (1, rows) if sizes.adj_x else (depth, 1)
    right = (1, depth) if sizes.adj_y else (columns, 1)
    kernel = "batch_matmul"
    right_memory: BoundOperand | Scratch = rhs
    before: tuple[Launch, ...] = ()
    work: tuple[WorkSize, WorkSize] = linear(output.count, device)
    if _fits_tiles(sizes, device):
        kernel = "batch_matmul_tiles"
        work = (-(-columns // LANES), -(-rows // _TILE_ROWS), sizes.batches), (1, 1, 1)
        if sizes.adj_y:
            scratch = Scratch(rhs.size_bytes)
            before = (_transposed(rhs, scratch, sizes, device),)
            right_memory, right = scratch, (columns, 1)
    mantissa = exponent = 0
    if op.data_type in QUANT8_TYPES:
        mantissa, exponent = (int(part[0]) for part in convolution_multipliers(lhs, rhs, output))
    product = Launch(
        Kernel("batch_matmul.cl", kernel, (("T", c_type(output)),)),
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


def _packed_steps(op: BoundOperation, sizes: BatchMatmul, kernel: Kernel) -> Steps:
    """Return two steps of a chain: right sides packed, then products."""
    lhs, rhs, output = op.input("lhs"), op.input("rhs"), op.outputs[0]
    batches, rows, columns, depth = sizes.batches, sizes.rows, sizes.columns, sizes.depth
    blocks = -(-columns // LANES)
    packed = Scratch(4 * batches * blocks * LANES * depth)
    packing = chain.Step(
        kernel,
        chain.Kind.PACK,
        rhs,
        packed,
        None,
        chain.rows_of(batches * blocks, depth * LANES),
        (np.array([depth, columns, int(sizes.adj_y)], np.int32),),
        {},
        0,
        rhs.size_bytes + packed.size_bytes,
        reads=chain.Reading(rhs.count // rhs.dimensions[-1], rhs.dimensions[-1], batches),
    )
    product = chain.Step(
        kernel,
        chain.Kind.MULTIPLY,
        lhs,
        output,
        packed,
        _products_of(batches, rows, columns, depth),
        (np.zeros(1, np.int32),),
        {},
        2 * output.count * depth,
        lhs.size_bytes + packed.size_bytes + output.size_bytes,
        reads=chain.Reading(batches * rows, depth, batches),
        reads_residual=chain.Reading(batches * blocks, depth * LANES, batches),
    )
    return Steps((packing, product))


def _products_of(batches: int, rows: int, columns: int, depth: int) -> SlidingWindow:
    return replace(chain.rows_of(rows, columns, batches), input_depth=depth)


def _fits_tiles(sizes: BatchMatmul, device: DeviceProfile) -> bool:
    """Whether batch_matmul_tiles applies: a work-item is a loop on a CPU, and a row of the output holds a vector."""
    return device.is_cpu and sizes.columns >= LANES


def _transposed(rhs: BoundOperand, memory: Scratch, sizes: BatchMatmul, device: DeviceProfile) -> Launch:
    """Return the launch that lays the right side out as [batches, depth, columns]."""
    columns, depth = sizes.columns, sizes.depth
    source = Side(rhs, (depth * columns, 1, depth))
    return strided_copy(
        (math.prod(sizes.leading), depth, columns), source, Side(memory, (depth * columns, columns, 1)), device
    )
