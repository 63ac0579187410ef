# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: each one transposition of six axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import from_nhwc, to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operations.space import space_blocks

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.DEPTH_TO_SPACE)
def depth_to_space(op: OperationView) -> tuple[Array, ...]:
    """Return the image with parts of its depth laid out as blocks of pixels."""
    blocks = space_blocks(op)
    batches, height, width, _depth = blocks.input_dimensions
    image = to_nhwc(op.array("input"), blocks.nchw)
    split = image.reshape(batches, height, width, blocks.block_height, blocks.block_width, -1)
    return (from_nhwc(split.transpose(0, 1, 3, 2, 4, 5).reshape(blocks.output_dimensions), blocks.nchw),)


@computes(OperationCode.SPACE_TO_DEPTH)
def space_to_depth(op: OperationView) -> tuple[Array, ...]:
    """Return the image with its blocks of pixels stacked in depth."""
    blocks = space_blocks(op)
    batches, height, width, _depth = blocks.output_dimensions
    image = to_nhwc(op.array("input"), blocks.nchw)
    split = image.reshape(batches, height, blocks.block_height, width, blocks.block_width, -1)
    return (from_nhwc(split.transpose(0, 1, 3, 2, 4, 5).reshape(blocks.output_dimensions), blocks.nchw),)


@computes(OperationCode.BATCH_TO_SPACE_ND)
def batch_to_space_nd(op: OperationView) -> tuple[Array, ...]:
    """Return the images with groups of batches laid out as blocks of pixels."""
    blocks = space_blocks(op)
    _batches, height, width, depth = blocks.input_dimensions
    image = to_nhwc(op.array("input"), blocks.nchw)
    split = image.reshape(blocks.block_height, blocks.block_width, -1, height, width, depth)
    return (from_nhwc(split.transpose(2, 3, 0, 4, 1, 5).reshape(blocks.output_dimensions), blocks.nchw),)


@computes(OperationCode.SPACE_TO_BATCH_ND)
def space_to_batch_nd(op: OperationView) -> tuple[Array, ...]:
    """Return the padded images with the pixels of each place in a block as batches of their own."""
    blocks = space_blocks(op)
    _batches, height, width, depth = blocks.output_dimensions
    amounts = ((0, 0), (blocks.padding_top, blocks.padding_bottom), (blocks.padding_left, blocks.padding_right), (0, 0))
    image = np.pad(to_nhwc(op.array("input"), blocks.nchw), amounts, constant_values=op.input("input").zero_point)
    split = image.reshape(-1, height, blocks.block_height, width, blocks.block_width, depth)
    return (from_nhwc(split.transpose(2, 4, 0, 1, 3, 5).reshape(blocks.output_dimensions), blocks.nchw),)
