# SPDX-License-Identifier: Apache-2.0
"""DYNAMIC_UPDATE_SLICE: a part of a tensor replaced, as caches of transformers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.concatenation import joined
from nn_runtime.tflite.values import Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.operator import Operator

_INTEGERS, _BOOLEANS = Value(OperandCode.TENSOR_INT32), Value(OperandCode.TENSOR_BOOL8)


@converts(BuiltinOperator.DYNAMIC_UPDATE_SLICE, inputs=3, version=6)
def _dynamic_update_slice(op: Operator) -> None:
    """(input, update, start): an update that would leave the input is moved back to where it fits.

    Axis by axis, the last first: the update, with what the input has around it along one axis, is the update of the
    axes before.
    """
    source, start = op.input(0, "operand"), op.input(2, "start_indices")
    update = op.same_integers(op.input(1, "update"), source)
    shape, sizes = source.shape or (), update.shape or ()
    fits = len(sizes) == len(shape) and all(map(int.__le__, sizes, shape))
    if not fits or update.type != source.type:
        op.fail(f"update (input 1) must be of the input's type in {list(shape)}, got {list(sizes)}")
    if start.type != OperandCode.TENSOR_INT32 or start.shape != (len(shape),):
        op.fail(f"start_indices (input 2) must be {len(shape)} integers, got {list(start.shape or ())}")
    replace = _at_computed_places if start.data is None else _at_known_places
    op.result_of_same_quantization(replace(op, source, update, start))


def _at_known_places(op: Operator, source: Value, update: Value, start: Value) -> Value:
    shape, sizes = source.shape or (), update.shape or ()
    given = op.integers(2, "start_indices")
    begins = [min(max(begin, 0), whole - size) for begin, size, whole in zip(given, sizes, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        end = begins[axis] + sizes[axis]
        before, behind = (
            _between(op, source, axis, bounds, begins, sizes) for bounds in ((0, begins[axis]), (end, shape[axis]))
        )
        parts = [part for part in (before, update, behind) if part is not None]
        update = joined(op, parts, axis, source) if len(parts) > 1 else update
    return update


def _between(
    op: Operator, source: Value, axis: int, bounds: tuple[int, int], begins: Sequence[int], sizes: Dimensions
) -> Value | None:
    """Return what lies between bounds of an axis, of the axes before it only what begins and sizes say."""
    shape, size = source.shape or (), bounds[1] - bounds[0]
    if not size:
        return None
    corner = int32_vector([*begins[:axis], bounds[0], *[0] * (len(shape) - axis - 1)])
    return op.moved(OperationCode.SLICE, source, corner, int32_vector([*sizes[:axis], size, *shape[axis + 1 :]]))


def _at_computed_places(op: Operator, source: Value, update: Value, start: Value) -> Value:
    """Put the update behind the input, and take of both in turn what belongs at each place of the axis."""
    shape, sizes = source.shape or (), update.shape or ()
    least = op.emit(OperationCode.MAXIMUM, [start, int32_vector([0])], _INTEGERS)
    limits = [whole - size for whole, size in zip(shape, sizes, strict=True)]
    start = op.emit(OperationCode.MINIMUM, [least, int32_vector(limits)], _INTEGERS)
    axes = [axis for axis in range(len(shape)) if limits[axis]]
    firsts = {
        axis: op.emit(OperationCode.SLICE, [start, int32_vector([axis]), int32_vector([1])], _INTEGERS) for axis in axes
    }
    for axis in reversed(axes):
        part = source
        for before in axes[: axes.index(axis)]:
            taken = _combined(op, OperationCode.ADD, _steps(op, sizes[before]), firsts[before])
            part = op.moved(OperationCode.GATHER, part, int32(before), taken)
        both = joined(op, [part, update], axis, source)
        update = op.moved(OperationCode.GATHER, both, int32(axis), _places(op, shape[axis], sizes[axis], firsts[axis]))
    return update


def _places(op: Operator, whole: int, size: int, first: Value) -> Value:
    """Return the number of each place of an axis, or if the update covers it that of its element behind the axis."""
    steps = _steps(op, whole)
    if size == 1:
        is_new = op.emit(OperationCode.EQUAL, [steps, first], _BOOLEANS)
        return op.emit(OperationCode.SELECT, [is_new, constant(np.full(whole, whole, np.int32)), steps], _INTEGERS)
    offsets = _combined(op, OperationCode.SUB, steps, first)
    is_behind_begin = op.emit(OperationCode.GREATER_EQUAL, [offsets, int32_vector([0])], _BOOLEANS)
    is_before_end = op.emit(OperationCode.LESS, [offsets, int32_vector([size])], _BOOLEANS)
    is_new = op.emit(OperationCode.LOGICAL_AND, [is_behind_begin, is_before_end], _BOOLEANS)
    new = _combined(op, OperationCode.ADD, offsets, int32_vector([whole]))
    return op.emit(OperationCode.SELECT, [is_new, new, steps], _INTEGERS)


def _steps(op: Operator, count: int) -> Value:
    op.spend(count)
    return constant(np.arange(count, dtype=np.int32))


def _combined(op: Operator, code: OperationCode, first: Value, second: Value) -> Value:
    return op.emit(code, [first, second, int32(FuseCode.NONE)], _INTEGERS)
