# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: one strided copy of six dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.kernel import Scratch
from gpu_driver.launchers.strided import Side, fill_memory, strided_copy
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides, image_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operand import FLOAT_TYPES, dtype_of
from nn_runtime.operations.space import space_blocks

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch
    from nn_runtime.operations.space import SpaceBlocks

_INTO_DEPTH = (OperationCode.SPACE_TO_DEPTH, OperationCode.DEPTH_TO_SPACE)


@launches(OperationCode.SPACE_TO_DEPTH, OperationCode.SPACE_TO_BATCH_ND)
def gather_blocks(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """SPACE_TO_DEPTH, SPACE_TO_BATCH_ND. FLOAT32, FLOAT16, QUANT8; padded input is made in scratch memory first."""
    blocks, source, output = space_blocks(op), op.input("input"), op.outputs[0]
    padded, before = _padded(source, blocks, device)
    sizes, fine, coarse = _views(op, blocks, blocks.output_dimensions)
    return *before, strided_copy(sizes, Side(padded, fine), Side(output, coarse), device)


@launches(OperationCode.DEPTH_TO_SPACE, OperationCode.BATCH_TO_SPACE_ND)
def spread_blocks(op: BoundOperation, device: DeviceProfile) -> Launch:
    """DEPTH_TO_SPACE, BATCH_TO_SPACE_ND. FLOAT32, FLOAT16, QUANT8; kernel strided_copy.cl:strided_copy."""
    blocks = space_blocks(op)
    sizes, fine, coarse = _views(op, blocks, blocks.input_dimensions)
    return strided_copy(sizes, Side(op.input("input"), coarse), Side(op.outputs[0], fine), device)


def _views(
    op: BoundOperation, blocks: SpaceBlocks, coarse: tuple[int, int, int, int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return sizes (batch, block y, row in it, block x, column in it, channel), strides of the image and of the blocks.

    `coarse` is [batches, height, width, depth] of the tensor that holds a block in its depth or batch.
    """
    rows, columns = blocks.block_height, blocks.block_width
    batches, height, width, depth = coarse
    batch, y, x, channel = image_strides(height, width, depth, blocks.nchw)
    if op.code in _INTO_DEPTH:
        depth //= rows * columns
        step = depth * channel
    else:
        batches //= rows * columns
        step = batches * batch
    fine_batch, fine_y, fine_x, fine_channel = image_strides(height * rows, width * columns, depth, blocks.nchw)
    return (
        (batches, height, rows, width, columns, depth),
        (fine_batch, rows * fine_y, fine_y, columns * fine_x, fine_x, fine_channel),
        (batch, y, columns * step, x, step, channel),
    )


def _padded(
    source: BoundOperand, blocks: SpaceBlocks, device: DeviceProfile
) -> tuple[BoundOperand | Scratch, tuple[Launch, ...]]:
    """Return the padded input and the launches that make it; padding is the zero point."""
    batches, height, width, depth = blocks.input_dimensions
    padded_height = blocks.padding_top + height + blocks.padding_bottom
    padded_width = blocks.padding_left + width + blocks.padding_right
    if (padded_height, padded_width) == (height, width):
        return source, ()
    dtype = dtype_of(source.type)
    count = math.prod((batches, padded_height, padded_width, depth))
    scratch = Scratch(count * dtype.itemsize)
    strides = image_strides(padded_height, padded_width, depth, blocks.nchw)
    offset = blocks.padding_top * strides[1] + blocks.padding_left * strides[2]
    value = 0 if source.type in FLOAT_TYPES else source.zero_point
    order = (0, 3, 1, 2) if blocks.nchw else (0, 1, 2, 3)
    inside = strided_copy(
        source.dimensions,
        Side(source, dense_strides(source.dimensions)),
        Side(scratch, tuple(strides[axis] for axis in order), offset),
        device,
    )
    return scratch, (fill_memory(scratch, count, value, dtype, device), inside)
