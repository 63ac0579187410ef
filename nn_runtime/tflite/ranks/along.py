# SPDX-License-Identifier: Apache-2.0
"""What is done element by element, and along axes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import is_tensor
from nn_runtime.tflite.booleans import as_integers, booleans_of
from nn_runtime.tflite.ranks.operation import (
    Operation,
    Rule,
    around,
    axis_of,
    number_of,
    numbers_of,
    runs,
    sizes_of,
)
from nn_runtime.tflite.values import MAX_DIMENSIONS, Value, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def elementwise(operation: Operation) -> list[Value]:
    """One function of elements, broadcast or not."""
    tensors = {position: value for position, value in enumerate(operation.inputs) if is_tensor(value.type)}
    shapes = [value.shape or () for value in tensors.values()]
    try:
        whole = np.broadcast_shapes(*shapes)
    except ValueError:
        raise operation.fail(f"shapes {', '.join(str(list(shape)) for shape in shapes)} do not go together") from None
    aligned = [(1,) * (len(whole) - len(shape)) + shape for shape in shapes]
    kinds = [None if size == 1 else tuple(shape[axis] == 1 for shape in aligned) for axis, size in enumerate(whole)]
    groups = runs(kinds)
    if len(groups) > MAX_DIMENSIONS:
        repeated = {position: _repeated(operation, value, whole) for position, value in tensors.items()}
        return operation.again(*(repeated.get(at, value) for at, value in enumerate(operation.inputs)))
    changed = {
        position: operation.under(value, sizes_of(shape, groups))
        for (position, value), shape in zip(tensors.items(), aligned, strict=True)
    }
    return operation.emit(changed, [whole])


def _repeated(operation: Operation, value: Value, whole: Dimensions) -> Value:
    """Return a tensor broadcast to a shape."""
    shape = (1,) * (len(whole) - value.rank) + (value.shape or ())
    if shape == whole:
        return value
    multiples = int32_vector([size // own for own, size in zip(shape, whole, strict=True)])
    source = as_integers(operation.builder, operation.under(value, shape))
    tiled = operation.append(OperationCode.TILE, [source, multiples], [replace(source, shape=None, data=None)])[0]
    return booleans_of(operation.builder, tiled) if value.type == OperandCode.TENSOR_BOOL8 else tiled


def along_axis(position: int | None, dropped: bool = False) -> Rule:
    """Return the rule of what is done along an axis, the last one without a position; the result may lack it."""

    def rule(operation: Operation) -> list[Value]:
        shape = operation.shape
        given = -1 if position is None else number_of(operation.inputs[position])
        axis = axis_of(operation, given)
        before, size, after = around(shape, axis)
        changed = {
            0: operation.under(operation.inputs[0], (before, size) if position is None else (before, size, after))
        }
        if position is not None:
            like = operation.inputs[position]
            changed[position] = int32(1) if not is_tensor(like.type) else int32_vector([1])
        result = (*shape[:axis], *shape[axis + 1 :]) if dropped else shape
        return operation.emit(changed, [result])

    return rule


def largest(operation: Operation) -> list[Value]:
    """TOPK_V2: (input, k) along the last axis."""
    *rest, size = operation.shape
    result = (*rest, number_of(operation.inputs[1]))
    return operation.emit({0: operation.under(operation.inputs[0], (math.prod(rest), size))}, [result, result])


def concatenation(operation: Operation) -> list[Value]:
    """(inputs ..., axis): what lies behind the axis belongs to it."""
    *tensors, last = operation.inputs
    axis = axis_of(operation, number_of(last))
    shapes = [value.shape or () for value in tensors]
    rests = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rests) > 1 or any(len(shape) != len(shapes[0]) for shape in shapes):
        raise operation.fail(f"the inputs must agree but for axis {axis}, got {[list(shape) for shape in shapes]}")
    before = math.prod(shapes[0][:axis])
    changed = {
        position: operation.under(value, (before, math.prod(value.shape or ()) // before))
        for position, value in enumerate(tensors)
    }
    changed[len(tensors)] = int32(1)
    joined = sum(shape[axis] for shape in shapes)
    return operation.emit(changed, [(*shapes[0][:axis], joined, *shapes[0][axis + 1 :])])


def split(operation: Operation) -> list[Value]:
    """(input, axis, count)."""
    shape, count = operation.shape, number_of(operation.inputs[2])
    axis = axis_of(operation, number_of(operation.inputs[1]))
    if count < 1 or shape[axis] % count:
        raise operation.fail(f"axis {axis} of size {shape[axis]} cannot be split in {count}")
    before, size, after = around(shape, axis)
    changed = {0: operation.under(operation.inputs[0], (before, size * after)), 1: int32(1)}
    return operation.emit(changed, [(*shape[:axis], size // count, *shape[axis + 1 :])] * count)


def pack(operation: Operation) -> list[Value]:
    """(axis, inputs ...) of one shape."""
    axis, tensors = number_of(operation.inputs[0]), operation.inputs[1:]
    shape = tensors[0].shape or ()
    if any(value.shape != tensors[0].shape for value in tensors) or not 0 <= axis <= len(shape):
        raise operation.fail(f"the inputs must have one shape, got {[list(value.shape or ()) for value in tensors]}")
    rows = math.prod(shape[:axis]), math.prod(shape[axis:])
    changed = {position: operation.under(value, rows) for position, value in enumerate(tensors, 1)}
    return operation.emit({0: int32(1), **changed}, [(*shape[:axis], len(tensors), *shape[axis:])])


def gather(operation: Operation) -> list[Value]:
    """(input, axis, indices)."""
    shape, indices = operation.shape, operation.inputs[2]
    axis = axis_of(operation, number_of(operation.inputs[1]))
    chosen = indices.dimensions if indices.rank <= MAX_DIMENSIONS else indices.shape
    changed = {
        0: operation.under(operation.inputs[0], around(shape, axis)),
        1: int32(1),
        2: operation.under(indices, (math.prod(chosen or ()),)),
    }
    return operation.emit(changed, [(*shape[:axis], *(chosen or ()), *shape[axis + 1 :])])


def reduction(operation: Operation) -> list[Value]:
    """(input, axes, whether they are kept): reduced and kept dimensions are in turn one each."""
    source, shape = operation.inputs[0], operation.shape
    axes = {axis_of(operation, int(axis)) for axis in numbers_of(operation.inputs[1]).reshape(-1)}
    is_kept = bool(number_of(operation.inputs[2]))
    groups = runs([None if size == 1 else axis in axes for axis, size in enumerate(shape)])
    result = [1 if axis in axes else size for axis, size in enumerate(shape)]
    if not is_kept:
        result = [size for axis, size in enumerate(result) if axis not in axes] or [1]
    reduced = [number for number, group in enumerate(groups) if any(axis in axes and shape[axis] > 1 for axis in group)]
    if not reduced:
        return [operation.under(source, result)]
    if len(groups) > MAX_DIMENSIONS:  # some of the axes now, the others after them
        now = set(groups[reduced[0]])
        kept = replace(operation.inputs[2], data=np.ones((), operation.inputs[2].data.dtype))  # type: ignore[union-attr]
        source = operation.again(source, int32_vector(sorted(axes & now)), kept)[0]
        source = operation.again(source, int32_vector(sorted(axes - now)), kept)[0]
        return [operation.under(source, result)]
    changed = {0: operation.under(source, sizes_of(shape, groups)), 1: int32_vector(reduced)}
    return operation.emit(changed, [tuple(result)])
