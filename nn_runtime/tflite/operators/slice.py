# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor, and what lies around it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.folding import Slices, strided_slices
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, real_scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_MAX_PADDING = 1 << 20


@converts(BuiltinOperator.SLICE, inputs=3, version=8)
def _slice(op: Operator) -> None:
    """(input, begin, size); a size -1 goes to the end."""
    source = op.input(0, "input")
    bounds = [int32_vector(op.by_dimension(1, "begin")), int32_vector(op.by_dimension(2, "size"))]
    op.result_of_same_quantization(op.moved(OperationCode.SLICE, source, *bounds))


@converts(BuiltinOperator.STRIDED_SLICE, inputs=4, version=8)
def _strided_slice(op: Operator) -> None:
    """(input, begin, end, strides)."""
    source = op.input(0, "input")
    slices = strided_slices(op, source.shape or ())
    if source.type == OperandCode.TENSOR_INT32:
        op.result(_integers_taken(op, source, slices))
        return
    # Past the front there is no end to name: a mask says so.
    end_mask = sum(1 << axis for axis, (_, end, _) in enumerate(slices.places) if end < 0)
    shrink_mask = sum(1 << axis for axis in slices.dropped)
    bounds = [int32_vector(values) for values in zip(*slices.places, strict=True)]
    masks = [int32(0), int32(end_mask), int32(shrink_mask)]
    taken = op.moved(OperationCode.STRIDED_SLICE, source, *bounds, *masks)
    if slices.new:
        sizes = [len(range(*place)) for place in slices.places]
        taken = op.reshape(taken, slices.result_shape(sizes))
    op.result_of_same_quantization(taken)


def _integers_taken(op: Operator, source: Value, slices: Slices) -> Value:
    places = [slice(begin, None if end < 0 else end, stride) for begin, end, stride in slices.places]
    numbers = op.numbers(source)[tuple(places)]
    if 0 in numbers.shape or any(numbers.shape[axis] != 1 for axis in slices.dropped):
        op.fail(f"a result of shape {list(numbers.shape)} is not supported")
    return op.rearranged(source, numbers.reshape(slices.result_shape(numbers.shape) or [1]))


@converts(BuiltinOperator.PAD, inputs=2, version=6)
def _pad(op: Operator) -> None:
    """(input, paddings [rank, 2])."""
    source = op.input(0, "input")
    if source.type == OperandCode.TENSOR_INT32:
        op.result(_padded_integers(op, source, 0))
    else:
        op.result_of_same_quantization(op.moved(OperationCode.PAD, source, _paddings(op)))


@converts(BuiltinOperator.PADV2, inputs=3, version=6)
def _pad_v2(op: Operator) -> None:
    """(input, paddings [rank, 2], value): a quantised value is given in the input's integers."""
    source = op.input(0, "input")
    value = op.array(2, "constant_values").reshape(-1)
    if value.size != 1:
        op.fail(f"constant_values (input 2) must have one element, got {value.size}")
    if source.type == OperandCode.TENSOR_INT32:
        op.result(_padded_integers(op, source, int(value[0])))
        return
    pad_value = int32(int(value[0])) if source.is_quantized else real_scalar(source, float(value[0]))
    op.result_of_same_quantization(op.emit(OperationCode.PAD_V2, [source, _paddings(op), pad_value], source))


def _paddings(op: Operator) -> Value:
    array = op.array(1, "paddings")
    op.integers(1, "paddings")
    return constant(array)


def _padded_integers(op: Operator, source: Value, number: int) -> Value:
    """Return 32-bit integers in a border, for which NNAPI has no PAD."""
    amounts = op.array(1, "paddings")
    op.integers(1, "paddings")
    if amounts.shape != (source.rank, 2) or int(amounts.min()) < 0 or int(amounts.max()) > _MAX_PADDING:
        op.fail(f"paddings (input 1) must be [{source.rank}, 2] numbers from 0, got {amounts.tolist()}")
    shape = [size + int(pair.sum()) for size, pair in zip(source.shape or (), amounts, strict=True)]
    if math.prod(shape) > _MAX_PADDING:
        op.fail(f"more than {_MAX_PADDING} elements of TENSOR_INT32 are not supported, got {shape}")
    numbers = np.pad(op.numbers(source), amounts.tolist(), constant_values=-1)
    spread = op.rearranged(source, np.maximum(numbers, 0))
    inside = Value(OperandCode.TENSOR_BOOL8, numbers.shape, data=numbers >= 0)
    return op.emit(OperationCode.SELECT, [inside, spread, constant(op.filled(spread, number, np.int32))], source)


@converts(BuiltinOperator.MIRROR_PAD, inputs=2, version=3)
def _mirror_pad(op: Operator) -> None:
    """(input, paddings [rank, 2])."""
    source = op.input(0, "input")
    mode = int32(op.option("mode"))
    op.result_of_same_quantization(op.moved(OperationCode.MIRROR_PAD, source, _paddings(op), mode))


@converts(BuiltinOperator.TOPK_V2, inputs=2, version=3)
def _topk_v2(op: Operator) -> None:
    """(input, k) along the last axis: of equal ones the first comes first, but the last in NNAPI, so that rows turn."""
    source, k = op.input(0, "input"), int32(op.integer(1, "k"))
    if source.rank == 0:
        op.fail("input (input 0) must have rank 1 at least, got []")
    turned = op.moved(OperationCode.REVERSE, source, int32_vector([source.rank - 1]))
    values, places = op.emit_many(OperationCode.TOPK_V2, [turned, k], [source, op.prototype(1)])
    op.result_of_same_quantization(values)
    last = constant(np.array([(source.shape or ())[-1] - 1], np.int32))
    op.result(op.emit(OperationCode.SUB, [last, places, int32(FuseCode.NONE)], places), 1)
