# SPDX-License-Identifier: Apache-2.0
"""Rows and windows put at places: SCATTER_ND, SPARSE_TO_DENSE, STABLEHLO_SCATTER."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.computations import combination
from nn_runtime.tflite.operators.concatenation import joined
from nn_runtime.tflite.operators.gather import index_vectors
from nn_runtime.tflite.operators.places import (
    GREATEST,
    PRODUCT,
    SUM,
    check_combined,
    combined_at_computed_places,
    combined_at_known_places,
)
from nn_runtime.tflite.operators.rows import computed_row_numbers, row_numbers
from nn_runtime.tflite.operators.shape import transposed
from nn_runtime.tflite.operators.whole_numbers import as_output, whole_numbers
from nn_runtime.tflite.values import Value, constant, int32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.operators.places import Combination

_INTEGERS, _BOOLEANS = Value(OperandCode.TENSOR_INT32), Value(OperandCode.TENSOR_BOOL8)


def _wanted_shape(op: Operator, position: int, name: str) -> Dimensions:
    shape = tuple(op.by_dimension(position, name))
    if not shape or min(shape) < 1:
        op.fail(f"{name} (input {position}) must be sizes > 0, got {list(shape)}")
    return shape


@converts(BuiltinOperator.SCATTER_ND, inputs=3)
def _scatter_nd(op: Operator) -> None:
    """(indices [..., columns], updates, shape): zeros, to which the updates are added, several to one place or none.

    TFLite refuses indices that are not within the shape; so are constants, but updates of computed ones are left out.
    Bytes are added without their zero point, and of their sums the lowest bits are kept.
    """
    indices, updates, shape = op.input(0, "indices"), op.input(1, "updates"), _wanted_shape(op, 2, "shape")
    if indices.type != OperandCode.TENSOR_INT32:
        op.fail(f"indices (input 0) must be of integers, got {OperandCode(indices.type).name}")
    outer, columns = (indices.shape or ())[:-1], (indices.shape or (0,))[-1]
    if not 1 <= columns <= len(shape) or 0 in outer:
        op.fail(f"indices (input 0) must be rows of 1 to {len(shape)} columns, got {list(indices.shape or ())}")
    indexed, rest = shape[:columns], shape[columns:]
    if updates.shape != (*outer, *rest):
        op.fail(f"updates (input 1) must be {[*outer, *rest]}, got {list(updates.shape or ())}")
    numbers: Array | Value
    if indices.data is None:
        numbers, are_different = computed_row_numbers(op, indices, indexed), math.prod(outer) == 1
    else:
        numbers = row_numbers(op, indices.data.reshape(-1, columns), indexed)
        are_different = np.unique(numbers).size == numbers.size
    are_bytes_added = updates.type in QUANT8_TYPES and not are_different
    rows = op.reshape(updates, (math.prod(outer), math.prod(rest)))
    rows = whole_numbers(op, rows) if are_bytes_added else rows
    _result(op, op.reshape(_combined(op, rows, numbers, math.prod(indexed), SUM), shape), are_bytes_added)


@converts(BuiltinOperator.SPARSE_TO_DENSE, inputs=4, version=3)
def _sparse_to_dense(op: Operator) -> None:
    """(indices, shape, values, default): one value for all places or one for each; the last of a place counts."""
    indices, shape = op.array(0, "indices"), _wanted_shape(op, 1, "output_shape")
    op.integers(0, "indices")
    values, default = op.input(2, "values"), op.input(3, "default_value")
    table = indices.reshape(-1, 1) if indices.ndim < 2 else indices
    if table.ndim != 2 or table.shape[1] != len(shape) or not table.size:
        op.fail(f"indices (input 0) must be rows of {len(shape)} numbers, got {list(indices.shape)}")
    if values.shape not in ((), (len(table),)) or default.shape not in ((), (1,)):
        op.fail(f"values (input 2) must be one or {len(table)}, and default_value (input 3) one")
    size = math.prod(shape)
    op.spend(2 * size)
    places = np.full(size, -1, np.int32)
    places[row_numbers(op, table, shape)] = np.arange(len(table)) if values.rank else 0
    spread = op.rearranged(op.as_integers(values), np.maximum(places, 0))
    rest = op.broadcast(op.same_integers(op.as_integers(default), spread), (size,))
    chosen = Value(OperandCode.TENSOR_BOOL8, (size,), data=places >= 0)
    result = op.emit(OperationCode.SELECT, [chosen, spread, rest], spread)
    result = op.as_booleans(result) if values.type == OperandCode.TENSOR_BOOL8 else result
    op.result_of_same_quantization(op.reshape(result, shape))


@converts(BuiltinOperator.STABLEHLO_SCATTER, inputs=3)
def _stablehlo_scatter(op: Operator) -> None:
    """(operand, indices, updates): windows of the operand, replaced by their updates or combined with them.

    What is whole in every window is a row; what is not has places, the rows' numbers. Of updates of one place the last
    counts; those of places outside are left out. Bytes are combined without their zero point.
    """
    source = op.input(0, "operand")
    updates = op.same_integers(op.input(2, "updates"), source)
    how = combination(op, "update_computation_subgraph_index")
    are_bytes_combined = how is not None and source.type == updates.type and source.type in QUANT8_TYPES
    if are_bytes_combined:
        source, updates = (whole_numbers(op, value) for value in (source, updates))
    shape = source.shape or ()
    moved, inserted, windows = _axes(op, source, updates)
    vectors, outer = index_vectors(op, len(moved), "scatter_indices")
    places = [axis for axis in range(updates.rank) if axis not in windows]
    sizes = _window_sizes(op, source, updates, outer, places)
    axes = [*moved, *(axis for axis, size in enumerate(shape) if axis not in moved and sizes[axis] != size)]
    order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
    indexed, row = ([shape[axis] for axis in some] for some in (axes, order[len(axes) :]))
    own = dict(zip((axis for axis in range(len(shape)) if axis not in inserted), windows, strict=True))
    turned = _turned(op, updates, [*places, *(own[axis] for axis in order if axis in own)])
    rows = op.reshape(turned, (math.prod(turned.shape or ()) // math.prod(row), math.prod(row)))
    base = op.reshape(_turned(op, source, order), (math.prod(indexed), math.prod(row)))
    elements = _elements(op, vectors, [sizes[axis] for axis in axes])
    result = op.reshape(_updated(op, base, rows, _numbers_inside(op, elements, indexed), how), [*indexed, *row])
    _result(op, _turned(op, result, [order.index(axis) for axis in range(len(order))]), are_bytes_combined)


def _result(op: Operator, value: Value, are_bytes: bool) -> None:
    """Make a value the result, of bytes that were combined as integers of 32 bits the lowest bits."""
    if are_bytes:
        op.result(as_output(op, value))
    else:
        op.result_of_same_quantization(value)


def _axes(op: Operator, source: Value, updates: Value) -> list[list[int]]:
    """Return axes of the operand that windows move along, those that they do not have, and theirs of the updates."""
    found = []
    for name, rank in (
        ("scatter_dims_to_operand_dims", source.rank),
        ("inserted_window_dims", source.rank),
        ("update_window_dims", updates.rank),
    ):
        axes = op.integer_options(name)
        if len(set(axes) & set(range(rank))) != len(axes):
            op.fail(f"{name} must be different axes of {rank}, got {axes}")
        found.append(axes)
    return found


def _window_sizes(op: Operator, source: Value, updates: Value, outer: Dimensions, places: Sequence[int]) -> list[int]:
    """Return the size of a window along each axis of the operand."""
    inserted, windows = (op.integer_options(name) for name in ("inserted_window_dims", "update_window_dims"))
    shape = updates.shape or ()
    is_complete = len(windows) == source.rank - len(inserted) and windows == sorted(windows)
    if not is_complete or [shape[axis] for axis in places] != list(outer) or updates.type != source.type:
        wanted = f"{list(outer)} windows of {source.rank - len(inserted)} rising axes, of the operand's type"
        op.fail(f"updates (input 2) must be {wanted}, got {list(shape)} with windows along {windows}")
    own = iter(windows)
    sizes = [1 if axis in inserted else shape[next(own)] for axis in range(source.rank)]
    if any(not 1 <= size <= whole for size, whole in zip(sizes, source.shape or (), strict=True)):
        op.fail(f"windows must be within {list(source.shape or ())}, got {sizes}")
    return sizes


def _elements(op: Operator, vectors: Value, sizes: Sequence[int]) -> Value:
    """Return the places [count, axes] of elements of windows, which begin at vectors, and at 0 along further axes."""
    count, columns = vectors.shape or (0, 0)
    within, missing = math.prod(sizes), len(sizes) - columns
    if not missing and within == 1:
        return vectors
    op.spend(count * within * len(sizes))
    offsets = np.indices(sizes, np.int32).reshape(len(sizes), within).T
    if vectors.data is not None:
        begins = np.pad(vectors.data, ((0, 0), (0, missing)))
        return constant((begins[:, None] + offsets).reshape(-1, len(sizes)))
    if missing:
        vectors = joined(op, [vectors, constant(np.zeros((count, missing), np.int32))], 1, _INTEGERS)
    begin, by = op.reshape(vectors, (count, 1, len(sizes))), constant(offsets[None])
    moved = op.emit(OperationCode.ADD, [begin, by, int32(FuseCode.NONE)], _INTEGERS)
    return op.reshape(moved, (count * within, len(sizes)))


def _turned(op: Operator, value: Value, order: Sequence[int]) -> Value:
    """Return a value with its axes in another order."""
    shape = value.shape or ()
    moved = [axis for axis in order if shape[axis] > 1]
    return (
        op.reshape(value, [shape[axis] for axis in order]) if moved == sorted(moved) else transposed(op, value, order)
    )


def _numbers_inside(op: Operator, indices: Value, indexed: Sequence[int]) -> Array | Value:
    """Return the numbers of rows that indices are of, < 0 or (computed ones) beyond them for those outside."""
    if indices.data is not None:
        table = indices.data.reshape(-1, len(indexed))
        is_inside = np.all((table >= 0) & (table < np.array(indexed)), axis=1, keepdims=True)
        numbers = row_numbers(op, np.where(is_inside, table, 0), tuple(indexed))
        return np.where(is_inside[:, 0], numbers, -1)
    return computed_row_numbers(op, indices, tuple(indexed))


def _updated(op: Operator, base: Value, rows: Value, numbers: Array | Value, how: Combination | None) -> Value:
    """Return rows of which some are replaced by others, or combined with them."""
    count = (base.shape or ())[0]
    if how is None:
        both = joined(op, [base, rows], 0, base)
        return op.moved(OperationCode.GATHER, both, int32(0), _latest(op, numbers, count))
    check_combined(op, rows)
    if how in (SUM, PRODUCT):
        return how.of(op, base, _combined(op, rows, numbers, count, how))
    # A place without updates must have what the operand has, which may be an infinity: its rows come first.
    op.spend(count)
    own = np.arange(count, dtype=np.int32)
    if isinstance(numbers, Value):
        numbers = joined(op, [constant(own), numbers], 0, _INTEGERS)
    else:
        numbers = np.concatenate([own, numbers])
    return _combined(op, joined(op, [base, rows], 0, base), numbers, count, how)


def _combined(op: Operator, rows: Value, numbers: Array | Value, count: int, how: Combination) -> Value:
    if isinstance(numbers, Value):
        return combined_at_computed_places(op, rows, numbers, count, how)
    return combined_at_known_places(op, rows, numbers, count, how)


def _latest(op: Operator, numbers: Array | Value, count: int) -> Value:
    """Return for each of so many rows its own number, or that of the last row behind them which shall be there."""
    op.spend(count)
    own = np.arange(count, dtype=np.int32)
    if not isinstance(numbers, Value):
        is_inside = numbers >= 0
        own[numbers[is_inside]] = count + np.flatnonzero(is_inside)
        return constant(own)
    size = (numbers.shape or ())[0]
    op.spend(size)
    behind = constant(np.arange(count, count + size, dtype=np.int32).reshape(size, 1))
    latest = op.reshape(combined_at_computed_places(op, behind, numbers, count, GREATEST), (count,))
    return op.emit(OperationCode.MAXIMUM, [latest, constant(own)], _INTEGERS)
