# SPDX-License-Identifier: Apache-2.0
"""The same elements under another shape or in another order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.folding import expanded_shape, known_shape, new_shape, squeezed_shape
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.blocks import batch_to_space, depth_to_space, space_to_batch, space_to_depth
from nn_runtime.tflite.operators.rows import placed
from nn_runtime.tflite.values import constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_MAX_RANGE = 1 << 20


@converts(BuiltinOperator.RESHAPE, inputs=2)
def _reshape(op: Operator) -> None:
    """(input, new shape or none): the shape is a constant, or an option."""
    _reshaped(op, new_shape(op))


def _source_shape(op: Operator) -> Dimensions:
    spectrum = op.spectrum(0)
    return (op.input(0, "input").shape or ()) if spectrum is None else spectrum.shape


def _reshaped(op: Operator, shape: Sequence[int]) -> None:
    spectrum = op.spectrum(0)
    if spectrum is not None:
        op.spectrum_result(replace(spectrum, shape=known_shape(op, shape, math.prod(spectrum.shape))))
        return
    source = op.input(0, "input")
    if source.channel_quant is not None:
        op.fail("a per-channel quantised input is not supported")
    op.result_of_same_quantization(op.moved(OperationCode.RESHAPE, source, int32_vector(shape or [1])))


@converts(BuiltinOperator.SQUEEZE, inputs=1, version=2)
def _squeeze(op: Operator) -> None:
    """(input); no dimensions means every one of size 1."""
    _reshaped(op, squeezed_shape(op, _source_shape(op)))


@converts(BuiltinOperator.EXPAND_DIMS, inputs=2)
def _expand_dims(op: Operator) -> None:
    """(input, axis)."""
    _reshaped(op, expanded_shape(op, _source_shape(op)))


@converts(BuiltinOperator.TRANSPOSE, inputs=2, version=9)
def _transpose(op: Operator) -> None:
    """(input, permutation)."""
    source = op.input(0, "input")
    op.result_of_same_quantization(transposed(op, source, op.by_dimension(1, "perm")))


def transposed(op: Operator, source: Value, order: Sequence[int]) -> Value:
    """Return a value with its axes in another order."""
    axes = _permutation(op, order, source.rank)
    if not axes:
        return source
    if source.type == OperandCode.TENSOR_INT32:
        return op.rearranged(source, op.numbers(source).transpose(axes))
    return op.moved(OperationCode.TRANSPOSE, source, int32_vector(axes))


def _permutation(op: Operator, order: Sequence[int], rank: int) -> list[int]:
    if len(order) != rank or sorted(axis % rank for axis in order) != list(range(rank)):
        op.fail(f"perm (input 1) must be a permutation of {rank} axes, got {list(order)}")
    return [axis % rank for axis in order]


@converts(BuiltinOperator.REVERSE_V2, inputs=2, version=4)
def _reverse_v2(op: Operator) -> None:
    """(input, axes): one REVERSE an axis."""
    source = op.input(0, "input")
    for axis in sorted({op.axis(axis, source.rank) for axis in op.integers(1, "axes")}):
        source = op.moved(OperationCode.REVERSE, source, int32_vector([axis]))
    op.result_of_same_quantization(source)


@converts(BuiltinOperator.TILE, inputs=2, version=3)
def _tile(op: Operator) -> None:
    """(input, multiples)."""
    source, multiples = op.input(0, "input"), op.by_dimension(1, "multiples")
    op.result_of_same_quantization(op.moved(OperationCode.TILE, source, int32_vector(multiples)))


@converts(BuiltinOperator.BROADCAST_TO, inputs=2, version=4)
def _broadcast_to(op: Operator) -> None:
    """(input, shape)."""
    op.result_of_same_quantization(op.broadcast(op.input(0, "input"), tuple(op.by_dimension(1, "shape"))))


@converts(BuiltinOperator.FILL, inputs=2, version=5)
def _fill(op: Operator) -> None:
    """(dimensions, value): a FILL of a known number, else the value repeated."""
    shape, value = tuple(op.by_dimension(0, "dims")), op.input(1, "value")
    scalars = {OperandCode.TENSOR_FLOAT32: OperandCode.FLOAT32, OperandCode.TENSOR_INT32: OperandCode.INT32}
    if value.data is not None and value.data.size == 1 and value.type in scalars and shape:
        number = scalar(scalars[OperandCode(value.type)], value.data.reshape(-1)[0].item())
        op.result(op.emit(OperationCode.FILL, [int32_vector(shape), number]))
    else:
        op.result_of_same_quantization(op.broadcast(op.reshape(value, (1,) * len(shape)), shape))


@converts(BuiltinOperator.RANGE, inputs=3, version=2)
def _range(op: Operator) -> None:
    """(start, limit, delta) of real numbers, each the one before plus delta; of integers in folding.py."""
    arrays = [op.array(at, name) for at, name in enumerate(("start", "limit", "delta"))]
    if any(array.size != 1 or array.dtype != np.float32 for array in arrays):
        given = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
        op.fail(f"start, limit and delta must be one FLOAT32 each, got {given}")
    start, limit, delta = (array.reshape(()) for array in arrays)
    with np.errstate(all="ignore"):
        steps = np.ceil((limit - start) / delta)
    if not 1 <= steps <= _MAX_RANGE:
        op.fail(f"a range must have 1 to {_MAX_RANGE} elements, got {start} to {limit} by {delta}")
    op.spend(int(steps))
    numbers = np.full(int(steps), delta, np.float32)
    numbers[0] = start
    op.result(constant(np.cumsum(numbers, dtype=np.float32)))


@converts(BuiltinOperator.ZEROS_LIKE, inputs=1)
def _zeros_like(op: Operator) -> None:
    """(input): a constant, as its shape is known."""
    wanted = op.prototype()
    zeros = op.filled(op.input(0, "input"), 0, np.float32 if wanted.type == OperandCode.TENSOR_FLOAT32 else np.int32)
    if wanted.type not in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32):
        op.fail(f"type {op.output_tensor().type.name} is not supported")
    op.result(constant(zeros))


def _blocks(op: Operator, code: OperationCode) -> None:
    """DEPTH_TO_SPACE, SPACE_TO_DEPTH: (input)."""
    source, size = op.input(0, "input", rank=4), op.option("block_size")
    if source.type == OperandCode.TENSOR_INT32:
        turn = depth_to_space if code == OperationCode.DEPTH_TO_SPACE else space_to_depth
        op.result(op.rearranged(source, turn(op, op.numbers(source), size)))
    else:
        op.result_of_same_quantization(op.moved(code, source, int32(size)))


@converts(BuiltinOperator.DEPTH_TO_SPACE, inputs=1, version=2)
def _depth_to_space(op: Operator) -> None:
    _blocks(op, OperationCode.DEPTH_TO_SPACE)


@converts(BuiltinOperator.SPACE_TO_DEPTH, inputs=1, version=2)
def _space_to_depth(op: Operator) -> None:
    _blocks(op, OperationCode.SPACE_TO_DEPTH)


def _image(op: Operator, source: Value) -> Value:
    """Return an input of rank 3, [batches, height, depth], as an image of width 1."""
    if source.rank not in (3, 4):
        op.fail(f"input (input 0) must have rank 3 or 4, got {list(source.shape or ())}")
    shape = source.shape or ()
    return source if source.rank == 4 else op.reshape(source, (*shape[:2], 1, shape[2]))


def _block_parameters(op: Operator, source: Value, name: str) -> tuple[list[int], list[list[int]]]:
    """Return block shape and the pairs of the third input, for an image."""
    block, array = op.by_dimension(1, "block_shape"), op.array(2, name)
    if array.shape != (len(block), 2) or len(block) != source.rank - 2:
        op.fail(f"block_shape and {name} must have {source.rank - 2} rows, got {len(block)} and {list(array.shape)}")
    pairs = [[int(number) for number in pair] for pair in array]
    return (block, pairs) if len(block) == 2 else ([*block, 1], [*pairs, [0, 0]])


@converts(BuiltinOperator.SPACE_TO_BATCH_ND, inputs=3, version=4)
def _space_to_batch_nd(op: Operator) -> None:
    """(input, block shape, paddings)."""
    source = op.input(0, "input")
    image = _image(op, source)
    block, paddings = _block_parameters(op, source, "paddings")
    if source.type == OperandCode.TENSOR_INT32:
        result = placed(op, image, space_to_batch(op, op.numbers(image), block, paddings))
    else:
        amounts = constant(np.array(paddings, np.int32))
        result = op.moved(OperationCode.SPACE_TO_BATCH_ND, image, int32_vector(block), amounts)
    op.result_of_same_quantization(_without_width(op, result, source))


@converts(BuiltinOperator.BATCH_TO_SPACE_ND, inputs=3, version=4)
def _batch_to_space_nd(op: Operator) -> None:
    """(input, block shape, crops): NNAPI does not crop, so that a SLICE does."""
    source = op.input(0, "input")
    image = _image(op, source)
    block, crops = _block_parameters(op, source, "crops")
    if source.type == OperandCode.TENSOR_INT32:
        result = op.rearranged(image, batch_to_space(op, op.numbers(image), block))
    else:
        result = op.moved(OperationCode.BATCH_TO_SPACE_ND, image, int32_vector(block))
    if any(map(any, crops)):
        batches, height, width, depth = result.shape or (0, 0, 0, 0)
        (top, bottom), (left, right) = crops
        size = (batches, height - top - bottom, width - left - right, depth)
        result = op.moved(OperationCode.SLICE, result, int32_vector([0, top, left, 0]), int32_vector(size))
    op.result_of_same_quantization(_without_width(op, result, source))


def _without_width(op: Operator, result: Value, source: Value) -> Value:
    batches, height, _, depth = result.shape or (0, 0, 0, 0)
    return result if source.rank == 4 else op.reshape(result, (batches, height, depth))
