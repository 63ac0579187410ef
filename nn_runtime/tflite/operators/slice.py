# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor, and what lies around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.folding import Computed, Slices, strided_slices
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.gaps import with_gaps
from nn_runtime.tflite.values import Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_NO_ACTIVATION = int32(FuseCode.NONE)
_INTEGERS = Value(OperandCode.TENSOR_INT32)


@converts(BuiltinOperator.SLICE, inputs=3, version=8)
def _slice(op: Operator) -> None:
    """(input, begin, size); a size -1 goes to the end. The run may compute where it begins."""
    source, begins, sizes = op.input(0, "input"), op.terms(1, "begin"), op.by_dimension(2, "size")
    computed = {axis: begin for axis, begin in enumerate(begins) if begin.source is not None}
    if not computed:
        bounds = [int32_vector([begin.number for begin in begins]), int32_vector(sizes)]
        op.result_of_same_quantization(op.moved(OperationCode.SLICE, source, *bounds))
        return
    shape = source.shape or ()
    if not len(begins) == len(sizes) == len(shape) or any(not 0 < sizes[axis] <= shape[axis] for axis in computed):
        op.fail(f"size (input 2) must be 1 to {list(shape)} where the run computes begin, got {sizes}")
    firsts = [0 if axis in computed else begin.number for axis, begin in enumerate(begins)]
    counts = [shape[axis] - firsts[axis] if axis in computed or size == -1 else size for axis, size in enumerate(sizes)]
    if any(firsts) or tuple(counts) != shape:
        source = op.moved(OperationCode.SLICE, source, int32_vector(firsts), int32_vector(counts))
    for axis, begin in computed.items():
        if sizes[axis] != shape[axis]:  # or it begins with the first
            source = _from_computed(op, source, axis, op.term(begin), range(sizes[axis]))
    op.result_of_same_quantization(source)


def _from_computed(op: Operator, source: Value, axis: int, begin: Value, steps: Sequence[int]) -> Value:
    """Return elements of an axis by their distance from a computed one; the run fails where one is not there."""
    op.spend(len(steps))
    numbers = begin
    if tuple(steps) != (0,):
        numbers = op.emit(OperationCode.ADD, [begin, int32_vector(steps), _NO_ACTIVATION], _INTEGERS)
    return op.moved(OperationCode.GATHER, source, int32(axis), numbers)


@converts(BuiltinOperator.STRIDED_SLICE, inputs=4, version=8)
def _strided_slice(op: Operator) -> None:
    """(input, begin, end, strides)."""
    source = op.input(0, "input")
    slices = strided_slices(op, source.shape or ())
    for axis, computed in slices.computed.items():
        source = _from_computed_place(op, source, axis, computed, slices.places[axis][1])
    if not slices.places:
        op.result_of_same_quantization(op.reshape(source, slices.result_shape(())))
        return
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


def _from_computed_place(op: Operator, source: Value, axis: int, computed: Computed, count: int) -> Value:
    """Return elements of an axis from a computed place on, which counts from the end if it is below 0.

    What reaches from there to the end of the axis or beyond would be of another size.
    """
    begin = op.term(computed.begin)
    from_front = op.emit(
        OperationCode.ADD, [begin, int32_vector([(source.shape or ())[axis]]), _NO_ACTIVATION], _INTEGERS
    )
    if not computed.reach:
        from_front = op.emit(OperationCode.MAXIMUM, [from_front, int32_vector([0])], _INTEGERS)
    limit = int32_vector([-computed.reach])
    is_below = op.emit(OperationCode.LESS, [begin, limit], Value(OperandCode.TENSOR_BOOL8))
    begin = op.emit(OperationCode.SELECT, [is_below, from_front, begin], _INTEGERS)
    return _from_computed(op, source, axis, begin, range(0, count * computed.stride, computed.stride))


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
        op.result(_framed(op, source, constant(np.zeros(1, np.int32))))
    else:
        op.result_of_same_quantization(op.moved(OperationCode.PAD, source, _paddings(op)))


@converts(BuiltinOperator.PADV2, inputs=3, version=6)
def _pad_v2(op: Operator) -> None:
    """(input, paddings [rank, 2], value): a quantised value is given in the input's integers."""
    op.result_of_same_quantization(_framed(op, op.input(0, "input"), op.input(2, "constant_values")))


def _paddings(op: Operator) -> Value:
    array = op.array(1, "paddings")
    op.integers(1, "paddings")
    return constant(array)


def _framed(op: Operator, source: Value, value: Value) -> Value:
    """Return a value with one number around it."""
    amounts = op.array(1, "paddings")
    op.integers(1, "paddings")
    if amounts.shape != (source.rank, 2) or int(amounts.min(initial=0)) < 0:
        op.fail(f"paddings (input 1) must be [{source.rank}, 2] numbers from 0, got {amounts.tolist()}")
    before, after = amounts.T.tolist()
    return with_gaps(op, source, value, [0] * source.rank, before, after)


@converts(BuiltinOperator.MIRROR_PAD, inputs=2, version=3)
def _mirror_pad(op: Operator) -> None:
    """(input, paddings [rank, 2])."""
    source = op.input(0, "input")
    mode = int32(op.option("mode"))
    op.result_of_same_quantization(op.moved(OperationCode.MIRROR_PAD, source, _paddings(op), mode))


@converts(BuiltinOperator.TOPK_V2, inputs=2, version=3, outputs=2)
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
