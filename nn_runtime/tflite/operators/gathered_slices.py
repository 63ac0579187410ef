# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_GATHER: slices of one size, each where an index says, along any axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.gather import are_neighbours, index_vectors
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.tflite.operator import Operator

_INTEGERS = Value(OperandCode.TENSOR_INT32)
_MAX_NUMBERS = 1 << 20


@dataclass(frozen=True)
class _Slices:
    """Sizes of the slices of a shape, the axes that indices move them along, and what lies where in the result."""

    shape: Dimensions
    sizes: Sequence[int]
    moved: Sequence[int]
    collapsed: Sequence[int]
    """Axes that the result has not."""
    offsets: Sequence[int]
    """Axes of the result that are the others."""
    outer: Dimensions
    """The shape of which each element is an index, which is that of the result's further axes."""

    @property
    def kept(self) -> list[int]:
        """Axes that the result has."""
        return [axis for axis in range(len(self.shape)) if axis not in self.collapsed]

    @property
    def rank(self) -> int:
        """Number of dimensions of the result."""
        return len(self.outer) + len(self.offsets)

    @property
    def places(self) -> list[int]:
        """Axes of the result that go by index."""
        return [axis for axis in range(self.rank) if axis not in self.offsets]

    @property
    def result(self) -> list[int]:
        """The result's shape."""
        return self.under({place: size for place, size in zip(self.places, self.outer, strict=True)}, self.rank)

    def under(self, sizes: dict[int, int], rank: int) -> list[int]:
        """Return the shape of the result's first dimensions, those of `sizes` and of slices."""
        own = {place: self.sizes[axis] for place, axis in zip(self.offsets, self.kept, strict=True)}
        return [{**own, **sizes}[axis] for axis in range(rank)]

    def whole(self) -> int:
        """Return how many of the last axes are whole in each slice, and last in the result: they are rows."""
        count = 0
        for place, axis in list(zip(self.offsets, self.kept, strict=True))[::-1]:
            is_last = (axis, place) == (len(self.shape) - 1 - count, self.rank - 1 - count)
            if not is_last or self.sizes[axis] != self.shape[axis]:
                break
            count += 1
        return count


@converts(BuiltinOperator.STABLEHLO_GATHER, inputs=2)
def _stablehlo_gather(op: Operator) -> None:
    """(operand, start indices): slices begin where an index says, but not so late that they reach beyond the end.

    What is whole in every slice is a row to GATHER; its number is that of the slice's begin and a known one within.
    """
    source = op.input(0, "operand")
    moved, collapsed, offsets, sizes = (
        op.integer_options(name) for name in ("start_index_map", "collapsed_slice_dims", "offset_dims", "slice_sizes")
    )
    vectors, outer = index_vectors(op, len(moved), "start_indices")
    slices = _Slices(source.shape or (), sizes, moved, collapsed, offsets, outer)
    _check(op, slices)
    leading = len(slices.shape) - slices.whole()
    numbers = _numbers(op, slices, vectors, leading)
    rows = op.reshape(source, (math.prod(slices.shape[:leading]), math.prod(slices.shape[leading:])))
    op.result_of_same_quantization(op.reshape(_rows(op, rows, numbers), slices.result or (1,)))


def _check(op: Operator, slices: _Slices) -> None:
    """Refuse options that do not go together."""
    axes = range(len(slices.shape))
    if len(slices.sizes) != len(axes) or any(
        not 1 <= size <= whole for size, whole in zip(slices.sizes, slices.shape, strict=True)
    ):
        op.fail(f"slice_sizes must be 1 to {list(slices.shape)}, got {list(slices.sizes)}")
    for name, some in (("start_index_map", slices.moved), ("collapsed_slice_dims", slices.collapsed)):
        if len(set(some) & set(axes)) != len(some):
            op.fail(f"{name} must be different axes of {len(axes)}, got {list(some)}")
    if any(slices.sizes[axis] != 1 for axis in slices.collapsed):
        op.fail(f"collapsed_slice_dims must have slices of size 1, got {list(slices.collapsed)}")
    is_of_result = sorted(set(slices.offsets) & set(range(slices.rank))) == list(slices.offsets)
    if not is_of_result or len(slices.offsets) != len(axes) - len(slices.collapsed):
        op.fail(f"offset_dims must be {len(slices.kept)} rising axes of {slices.rank}, got {list(slices.offsets)}")


def _numbers(op: Operator, slices: _Slices, vectors: Value, leading: int) -> Value:
    """Return the numbers of rows, in the shape of the result's first dimensions."""
    rank = slices.rank - (len(slices.shape) - leading)
    ones = slices.under({place: 1 for place in slices.places}, rank)
    alone = [size if place in slices.places else 1 for place, size in enumerate(slices.result[:rank])]
    if math.prod(slices.result[:rank]) > _MAX_NUMBERS or math.prod(slices.shape) > np.iinfo(np.int32).max:
        op.fail(f"at most {_MAX_NUMBERS} rows of slices are supported, got {slices.result[:rank]}")
    op.spend(math.prod(slices.result[:rank]))
    strides = [math.prod(slices.shape[axis + 1 : leading]) for axis in range(leading)] + [0] * slices.whole()
    within = np.zeros(ones, np.int32)
    for place, axis in zip(slices.offsets, slices.kept, strict=True):
        if axis < leading:
            steps = np.arange(slices.sizes[axis], dtype=np.int32) * strides[axis]
            within += steps.reshape([-1 if at == place else 1 for at in range(rank)])
    last = np.array([slices.shape[axis] - slices.sizes[axis] for axis in slices.moved], np.int32)
    skipped = np.array([strides[axis] for axis in slices.moved], np.int32)
    if vectors.data is not None:
        begins = np.clip(vectors.data, 0, last) @ skipped
        return constant(begins.reshape(alone).astype(np.int32) + within)
    begin = op.reshape(_computed_begins(op, vectors, last, skipped), alone or (1,))
    return op.emit(OperationCode.ADD, [begin, constant(within), int32(FuseCode.NONE)], _INTEGERS)


def _computed_begins(op: Operator, vectors: Value, last: Array, skipped: Array) -> Value:
    """Return for each index the number of its row."""
    vectors = op.emit(OperationCode.MAXIMUM, [vectors, int32_vector([0])], _INTEGERS)
    vectors = op.emit(OperationCode.MINIMUM, [vectors, constant(last)], _INTEGERS)
    flag = scalar(OperandCode.BOOL, False)
    sides = op.reshape(vectors, (1, *(vectors.shape or ()))), constant(skipped.reshape(1, -1, 1))
    return op.emit(OperationCode.BATCH_MATMUL, [*sides, flag, flag], _INTEGERS)


def _rows(op: Operator, rows: Value, numbers: Value) -> Value:
    """Return rows by their numbers, those that are known neighbours as a slice."""
    count, width = rows.shape or (0, 0)
    if numbers.data is not None and are_neighbours(numbers.data.reshape(-1), count):
        bounds = int32_vector([int(numbers.data.reshape(-1)[0]), 0]), int32_vector([numbers.data.size, width])
        return op.moved(OperationCode.SLICE, rows, *bounds)
    return op.moved(OperationCode.GATHER, rows, int32(0), op.reshape(numbers, (-1,)))
