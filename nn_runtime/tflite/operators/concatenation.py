# SPDX-License-Identifier: Apache-2.0
"""Joining tensors and taking them apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.folding import part_count, split_sizes
from nn_runtime.tflite.list_items import SET_ITEM
from nn_runtime.tflite.operator_inputs import ACTIVATIONS
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_MAX_INTEGERS = 1 << 20


@converts(BuiltinOperator.CONCATENATION, inputs=None, version=7)
def _concatenation(op: Operator) -> None:
    """(inputs ...); those without elements are left out."""
    op.activation(refused=range(1, len(ACTIVATIONS)))
    tensors = [op.input(position, "values") for position in range(op.input_count)]
    axis = op.axis(op.option("axis"), op.input(0, "values").rank)
    op.result(joined(op, [tensor for tensor in tensors if 0 not in (tensor.shape or ())] or tensors, axis))


def joined(op: Operator, tensors: Sequence[Value], axis: int, like: Value | None = None) -> Value:
    """Return a concatenation typed as the file's first output or as `like`; NNAPI has none of integers or booleans."""
    if all(tensor.type == OperandCode.TENSOR_INT32 for tensor in tensors):
        return _joined_integers(op, tensors, axis)
    if tensors[0].type != OperandCode.TENSOR_BOOL8:
        return op.emit(OperationCode.CONCATENATION, [*tensors, int32(axis)], like)
    integers = [op.as_integers(tensor) for tensor in tensors]
    return op.booleans_of(op.emit(OperationCode.CONCATENATION, [*integers, int32(axis)], integers[0]))


def _joined_integers(op: Operator, tensors: Sequence[Value], axis: int) -> Value:
    """Return 32-bit integers side by side: each input is spread over the whole result, SELECT puts it in its place."""
    shape = list(tensors[0].shape or ())
    for tensor in tensors[1:]:
        other = list(tensor.shape or ())
        if len(other) != len(shape) or [*other[:axis], *other[axis + 1 :]] != [*shape[:axis], *shape[axis + 1 :]]:
            op.fail(f"the inputs must agree but for axis {axis}, got {shape} and {other}")
    sizes = [(tensor.shape or ())[axis] for tensor in tensors]
    if 0 in sizes:
        op.fail(f"an input without elements is not supported beside others, got {sizes} along axis {axis}")
    joined_shape = [*shape[:axis], sum(sizes), *shape[axis + 1 :]]
    if math.prod(joined_shape) > _MAX_INTEGERS:
        op.fail(f"more than {_MAX_INTEGERS} elements of TENSOR_INT32 are not supported, got {joined_shape}")
    owner = np.repeat(np.arange(len(tensors)), sizes)
    result: Value | None = None
    for number, tensor in enumerate(tensors):
        places = np.clip(np.arange(owner.size) - sum(sizes[:number]), 0, sizes[number] - 1)
        spread = op.rearranged(tensor, op.numbers(tensor).take(places, axis))
        own = np.broadcast_to((owner == number).reshape(-1, *(1,) * (len(shape) - axis - 1)), spread.shape or ())
        chosen = Value(OperandCode.TENSOR_BOOL8, own.shape, data=own)
        result = spread if result is None else op.emit(OperationCode.SELECT, [chosen, spread, result], spread)
    if result is None:
        op.fail("needs an input")
    return result


@converts(SET_ITEM, inputs=3)
def _set_item(op: Operator) -> None:
    """(list [count, ...], index, item [1, ...]): the new row lies behind the list, whose index takes that."""
    source, item = op.unmade(0) or op.input(0, "list"), op.input(2, "item")
    if op.is_constant(1) and source.type not in (OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8):
        at = op.integer(1, "index")
        op.result(op.with_item(source, at, item) if 0 <= at < (source.shape or (0,))[0] else source)
        return
    source = op.input(0, "list")
    numbers = np.arange((source.shape or (0,))[0], dtype=np.int32)
    last = constant(np.full_like(numbers, numbers.size))
    index = op.reshape(op.input(1, "index"), (1,))
    is_new = op.emit(OperationCode.EQUAL, [constant(numbers), index], Value(OperandCode.TENSOR_BOOL8))
    taken = op.emit(OperationCode.SELECT, [is_new, last, constant(numbers)], constant(numbers))
    rows = joined(op, [source, item], 0)
    op.result_of_same_quantization(op.moved(OperationCode.GATHER, rows, int32(0), taken))


@converts(BuiltinOperator.PACK, inputs=None, version=5)
def _pack(op: Operator) -> None:
    """(inputs ...) of one shape: each gets an axis of size 1, then they are concatenated."""
    shape = op.input(0, "values").shape or ()
    axis = op.axis(op.option("axis"), len(shape) + 1)
    if op.input(0, "values").type == OperandCode.TENSOR_INT32:
        packed = op.emit(OperationCode.PACK, [int32(axis), *(op.input(i, "values") for i in range(op.input_count))])
        op.result(packed if shape else op.reshape(packed, (op.input_count,)))
        return
    expanded = (*shape[:axis], 1, *shape[axis:])
    tensors = [op.reshape(op.input(position, "values"), expanded) for position in range(op.input_count)]
    op.result(joined(op, tensors, axis))


def split_evenly(op: Operator, source: Value, axis: int, count: int) -> list[Value]:
    """Return the equal parts of a value along an axis."""
    if source.type == OperandCode.TENSOR_BOOL8:
        parts = split_evenly(op, op.as_integers(source), axis, count)
        return [op.booleans_of(part) for part in parts]
    return op.emit_many(OperationCode.SPLIT, [source, int32(axis), int32(count)], [source] * count)


@converts(BuiltinOperator.SPLIT, inputs=2, version=5, outputs=None)
def _split(op: Operator) -> None:
    """(axis, input)."""
    source = op.input(1, "value")
    axis = op.axis(op.integer(0, "axis"), len(source.shape or ()))
    for position, part in enumerate(split_evenly(op, source, axis, part_count(op))):
        op.result_of_same_quantization(part, position)


@converts(BuiltinOperator.UNPACK, inputs=1, version=6, outputs=None)
def _unpack(op: Operator) -> None:
    """(input): split along an axis, which is then dropped."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis = op.axis(op.option("axis"), len(shape))
    if shape[axis] != op.output_count:
        op.fail(f"needs {shape[axis]} outputs, one for each index of axis {axis}, got {op.output_count}")
    rest = (*shape[:axis], *shape[axis + 1 :])
    for position, part in enumerate(split_evenly(op, source, axis, op.output_count)):
        op.result_of_same_quantization(op.reshape(part, rest or (1,)), position)


@converts(BuiltinOperator.SPLIT_V, inputs=3, version=3, outputs=None)
def _split_v(op: Operator) -> None:
    """(input, sizes, axis): one SLICE an output; one size may be -1."""
    source = op.input(0, "value")
    shape = source.shape or ()
    axis, sizes = split_sizes(op, shape)
    begin = 0
    for position, size in enumerate(sizes):
        begins, taken = [0] * len(shape), list(shape)
        begins[axis], taken[axis] = begin, size
        if size:
            part = op.moved(OperationCode.SLICE, source, int32_vector(begins), int32_vector(taken))
            op.result_of_same_quantization(part, position)
        else:
            op.empty_result(tuple(taken), position)
        begin += size
