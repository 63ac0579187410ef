# SPDX-License-Identifier: Apache-2.0
"""Elements and rows by their numbers: GATHER, GATHER_ND, REVERSE_SEQUENCE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.folding import gather_batches
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.rows import are_within, computed_row_numbers, number_or, row_numbers
from nn_runtime.tflite.operators.shape import transposed
from nn_runtime.tflite.values import Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator

_NUMBERS = Value(OperandCode.TENSOR_INT32)


def _indices(op: Operator) -> Value:
    indices = op.input(1, "indices")
    if indices.type != OperandCode.TENSOR_INT32:
        op.fail(f"indices (input 1) must be INT16, INT32 or INT64, got {OperandCode(indices.type).name}")
    return indices


def index_vectors(op: Operator, columns: int, name: str) -> tuple[Value, Dimensions]:
    """Return the second input as vectors [count, columns] of StableHLO, and the shape of which each is an element."""
    indices, axis = op.input(1, name), op.option("index_vector_dim")
    shape = indices.shape or ()
    is_axis = 0 <= axis <= len(shape) and (*shape, 1)[axis] == columns
    if indices.type != OperandCode.TENSOR_INT32 or 0 in shape or not is_axis:
        wanted = f"integers with {columns} along index_vector_dim {axis}"
        op.fail(f"{name} (input 1) must be {wanted}, got {OperandCode(indices.type).name} {list(shape)}")
    outer = (*shape[:axis], *shape[axis + 1 :])
    if axis < len(shape) - 1:
        indices = transposed(op, indices, [*range(axis), *range(axis + 1, len(shape)), axis])
    return op.reshape(indices, (math.prod(outer), columns)), outer


@converts(BuiltinOperator.GATHER, inputs=2, version=8)
def _gather(op: Operator) -> None:
    """(input, indices); a scalar index drops the axis."""
    source, indices = op.input(0, "params"), _indices(op)
    shape, axis = source.shape or (), op.axis(op.option("axis"), source.rank)
    batches = gather_batches(op, shape, indices.shape or (), axis)
    if batches:
        op.result_of_same_quantization(_gathered_in_batches(op, source, indices, axis, batches))
        return
    if indices.data is not None and are_neighbours(indices.data.reshape(-1), shape[axis]):
        op.result_of_same_quantization(_run(op, source, axis, indices))
        return
    result = op.moved(OperationCode.GATHER, source, int32(axis), indices)
    if indices.rank == 0 and source.rank > 1:
        result = op.reshape(result, (*shape[:axis], *shape[axis + 1 :]))
    op.result_of_same_quantization(result)


def are_neighbours(indices: Array, size: int) -> bool:
    """Tell whether known indices are so many in a row, of that many that there are."""
    first = int(indices[0]) if indices.size else -1
    return 0 <= first <= size - indices.size and np.array_equal(indices, np.arange(first, first + indices.size))


def _run(op: Operator, source: Value, axis: int, indices: Value) -> Value:
    """Return what known neighbours choose along an axis, as a slice, which more devices join with other operations."""
    if indices.data is None:
        op.fail("the indices must be constants")
    shape = source.shape or ()
    begins, sizes = [0] * len(shape), list(shape)
    begins[axis], sizes[axis] = int(indices.data.reshape(-1)[0]), indices.data.size
    part = source
    if tuple(sizes) != shape:
        part = op.moved(OperationCode.SLICE, source, int32_vector(begins), int32_vector(sizes))
    result = (*shape[:axis], *(indices.shape or ()), *shape[axis + 1 :])
    return op.reshape(part, result or (1,))


def _gathered_in_batches(op: Operator, source: Value, indices: Value, axis: int, batches: int) -> Value:
    """Return elements of an axis by numbers that each batch has of its own.

    Batches, what lies between them and the axis, and the axis are one axis to GATHER.
    """
    shape, chosen = source.shape or (), indices.shape or ()
    batch_count, between, size = math.prod(shape[:batches]), math.prod(shape[batches:axis]), shape[axis]
    if batch_count * between * size > np.iinfo(np.int32).max:
        op.fail(f"rows of {list(shape)} must have numbers of 32 bits")
    op.spend(batch_count * between)
    first = np.arange(batch_count * between, dtype=np.int32).reshape(batch_count, between, 1) * size
    own = op.reshape(indices, (batch_count, 1, math.prod(chosen[batches:])))
    if own.data is not None:
        if own.data.size and not 0 <= int(own.data.min()) <= int(own.data.max()) < size:
            op.fail(f"indices (input 1) must be in [0, {size})")
        op.spend(own.data.size * between)
        numbers = constant(own.data + first)
    else:  # GATHER fails for a number < 0, where one of another batch would be taken
        own = number_or(op, are_within(op, own, [size]), own, np.iinfo(np.int32).min)
        numbers = op.emit(OperationCode.ADD, [own, constant(first), int32(FuseCode.NONE)], _NUMBERS)
    rows = op.reshape(source, (batch_count * between * size, math.prod(shape[axis + 1 :])))
    result = op.moved(OperationCode.GATHER, rows, int32(0), op.reshape(numbers, (-1,)))
    return op.reshape(result, (*shape[:axis], *chosen[batches:], *shape[axis + 1 :]))


@converts(BuiltinOperator.GATHER_ND, inputs=2, version=6)
def _gather_nd(op: Operator) -> None:
    """(input, indices [..., columns]): the input's first dimensions, as many as columns, are one axis to GATHER."""
    source, indices = op.input(0, "params"), _indices(op)
    shape, outer, columns = source.shape or (), (indices.shape or ())[:-1], (indices.shape or (0,))[-1]
    if not 1 <= columns <= source.rank:
        op.fail(f"indices (input 1) must have 1 to {source.rank} columns, got {list(indices.shape or ())}")
    indexed, rest = shape[:columns], shape[columns:]
    if indices.data is None:
        numbers = computed_row_numbers(op, indices, indexed)
    else:
        numbers = constant(row_numbers(op, indices.data.reshape(-1, columns), indexed))
    rows = op.reshape(source, (math.prod(indexed), math.prod(rest)))
    result = op.moved(OperationCode.GATHER, rows, int32(0), numbers)
    op.result_of_same_quantization(op.reshape(result, (*outer, *rest) or (1,)))


@converts(BuiltinOperator.REVERSE_SEQUENCE, inputs=2)
def _reverse_sequence(op: Operator) -> None:
    """(input, lengths [batches]): of each batch as many elements of the sequence as its length change their order."""
    source, lengths = op.input(0, "input"), op.input(1, "seq_lengths")
    shape = source.shape or ()
    time, batch = (op.axis(op.option(name), source.rank) for name in ("seq_dim", "batch_dim"))
    if time == batch or 0 in shape:
        op.fail(f"seq_dim and batch_dim must be two dimensions of {list(shape)} > 0, got {time} and {batch}")
    if lengths.type != OperandCode.TENSOR_INT32 or lengths.shape != (shape[batch],):
        op.fail(f"seq_lengths (input 1) must be {shape[batch]} integers, got {list(lengths.shape or ())}")
    leading = shape[: max(time, batch) + 1]
    op.spend(2 * math.prod(leading))
    lengths = op.reshape(lengths, (shape[batch], *(1,) * (len(leading) - batch - 1)))
    steps = np.arange(shape[time], dtype=np.int32).reshape(-1, *(1,) * (len(leading) - time - 1))
    stride = math.prod(leading[time + 1 :])
    first = np.arange(math.prod(leading), dtype=np.int32).reshape(leading).take([0], time)
    if lengths.data is not None:
        numbers = constant(_known_order(op, lengths.data, steps) * np.int32(stride) + first)
    else:
        order = _computed_order(op, lengths, steps)
        skipped = op.emit(OperationCode.MUL, [order, int32_vector([stride]), int32(FuseCode.NONE)], _NUMBERS)
        numbers = op.emit(OperationCode.ADD, [skipped, constant(first), int32(FuseCode.NONE)], _NUMBERS)
    rows = op.reshape(source, (math.prod(leading), math.prod(shape[len(leading) :])))
    result = op.moved(OperationCode.GATHER, rows, int32(0), op.reshape(numbers, (-1,)))
    op.result_of_same_quantization(op.reshape(result, shape))


def _known_order(op: Operator, lengths: Array, steps: Array) -> Array:
    """Return the step that takes the place of each step."""
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= steps.size:
        op.fail(f"seq_lengths (input 1) must be numbers of 0 to {steps.size}, got {lengths.reshape(-1).tolist()}")
    order: Array = np.where(steps < lengths, lengths - 1 - steps, steps)
    return order


def _computed_order(op: Operator, lengths: Value, steps: Array) -> Value:
    mirrored = op.emit(OperationCode.SUB, [lengths, constant(steps + 1), int32(FuseCode.NONE)], _NUMBERS)
    is_within = op.emit(OperationCode.GREATER_EQUAL, [mirrored, int32_vector([0])], Value(OperandCode.TENSOR_BOOL8))
    own = op.broadcast(constant(steps), mirrored.shape or ())
    return op.emit(OperationCode.SELECT, [is_within, mirrored, own], _NUMBERS)
