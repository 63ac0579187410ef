# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: blocks of pixels moved to depth or batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_same_quantization
from nn_runtime.operations.signature import (
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.operations.sliding_window import LAYOUT, image_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class SpaceBlocks:
    """Blocks of one operation; dimensions are [batches, height, width, depth], whatever the layout.

    Pixel (row, column) of a block has index row * block_width + column, and that index is the slower part of the depth
    (SPACE_TO_DEPTH, DEPTH_TO_SPACE) or of the batch (the others). Paddings are those of SPACE_TO_BATCH_ND.
    """

    block_height: int
    block_width: int
    input_dimensions: tuple[int, int, int, int]
    output_dimensions: tuple[int, int, int, int]
    nchw: bool
    padding_top: int = 0
    padding_bottom: int = 0
    padding_left: int = 0
    padding_right: int = 0


def space_blocks(op: OperationView) -> SpaceBlocks:
    """Return the geometry of an operation whose sizes and values are known; raises BadData."""
    return _GEOMETRY[op.code](op)


def _depth_to_space(op: OperationView) -> SpaceBlocks:
    batches, height, width, depth = dims = image_dimensions(op)
    block = _block_size(op)
    if depth % (block * block):
        op.fail("block_size", f"squared must divide the depth {depth}", block)
    output = (batches, height * block, width * block, depth // (block * block))
    return SpaceBlocks(block, block, dims, output, op.bool_value("layout"))


def _space_to_depth(op: OperationView) -> SpaceBlocks:
    batches, height, width, depth = dims = image_dimensions(op)
    block = _block_size(op)
    if height % block or width % block:
        op.fail("block_size", f"must divide height {height} and width {width}", block)
    output = (batches, height // block, width // block, depth * block * block)
    return SpaceBlocks(block, block, dims, output, op.bool_value("layout"))


def _batch_to_space(op: OperationView) -> SpaceBlocks:
    batches, height, width, depth = dims = image_dimensions(op)
    rows, columns = _block_shape(op)
    if batches % (rows * columns):
        op.fail("block_shape", f"multiplied must divide the {batches} batches", [rows, columns])
    output = (batches // (rows * columns), height * rows, width * columns, depth)
    return SpaceBlocks(rows, columns, dims, output, op.bool_value("layout"))


def _space_to_batch(op: OperationView) -> SpaceBlocks:
    batches, height, width, depth = dims = image_dimensions(op)
    rows, columns = _block_shape(op)
    paddings = op.int_values("paddings")
    if op.dimensions("paddings") != (2, 2) or min(paddings) < 0:
        op.fail("paddings", "must be [2, 2] numbers >= 0", paddings)
    top, bottom, left, right = paddings
    padded_height, padded_width = height + top + bottom, width + left + right
    if padded_height % rows or padded_width % columns:
        op.fail("block_shape", f"must divide the padded size {padded_height} x {padded_width}", [rows, columns])
    output = (batches * rows * columns, padded_height // rows, padded_width // columns, depth)
    return SpaceBlocks(rows, columns, dims, output, op.bool_value("layout"), top, bottom, left, right)


def _block_size(op: OperationView) -> int:
    block = op.int_value("block_size")
    if block < 1:
        op.fail("block_size", "must be >= 1", block)
    return block


def _block_shape(op: OperationView) -> tuple[int, int]:
    shape = op.int_values("block_shape")
    if len(shape) != 2 or min(shape) < 1:
        op.fail("block_shape", "must be 2 numbers >= 1", shape)
    return shape[0], shape[1]


_GEOMETRY: Mapping[int, Callable[[OperationView], SpaceBlocks]] = {
    OperationCode.DEPTH_TO_SPACE: _depth_to_space,
    OperationCode.SPACE_TO_DEPTH: _space_to_depth,
    OperationCode.BATCH_TO_SPACE_ND: _batch_to_space,
    OperationCode.SPACE_TO_BATCH_ND: _space_to_batch,
}


def _check(op: OperationView) -> FeatureLevel:
    source = op.input("input")
    check_same_quantization(op, source)
    # HAL 1.1 padded with 0, whatever the zero point.
    nonzero = op.code == OperationCode.SPACE_TO_BATCH_ND and source.zero_point
    return FeatureLevel.HAL_1_2 if nonzero else FeatureLevel.HAL_1_0


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    blocks = space_blocks(op)
    batches, height, width, depth = blocks.output_dimensions
    return ((batches, depth, height, width) if blocks.nchw else (batches, height, width, depth),)


def _define(code: OperationCode, parameters: tuple[Input, ...], since: FeatureLevel) -> None:
    data_types = {**FLOAT_AND_QUANT8, OperandCode.TENSOR_FLOAT32: since, OperandCode.TENSOR_QUANT8_ASYMM: since}
    variant = Variant((Input("input", rank=(4, 4)), *parameters, LAYOUT))
    define(Definition(code, (variant,), (Output("output", rank=(4, 4)),), data_types, _prepare, _check))


_BLOCK_SIZE = Input("block_size", INT32)
_BLOCK_SHAPE = Input("block_shape", INT32_TENSOR, (1, 1), parameter=True)
_PADDINGS = Input("paddings", INT32_TENSOR, (2, 2), parameter=True)

_define(OperationCode.DEPTH_TO_SPACE, (_BLOCK_SIZE,), FeatureLevel.HAL_1_0)
_define(OperationCode.SPACE_TO_DEPTH, (_BLOCK_SIZE,), FeatureLevel.HAL_1_0)
_define(OperationCode.BATCH_TO_SPACE_ND, (_BLOCK_SHAPE,), FeatureLevel.HAL_1_1)
_define(OperationCode.SPACE_TO_BATCH_ND, (_BLOCK_SHAPE, _PADDINGS), FeatureLevel.HAL_1_1)
