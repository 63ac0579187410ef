# SPDX-License-Identifier: Apache-2.0
"""An operation on tensors of any rank, and which of its dimensions can be one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.tflite.booleans import reshaped
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.codes import OperationCode
    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.model_builder import ModelBuilder
    from nn_runtime.tflite.values import Value

Append: TypeAlias = "Callable[[OperationCode, Sequence[Value], Sequence[Value]], list[Value]]"
Rule: TypeAlias = "Callable[[Operation], list[Value]]"
Groups: TypeAlias = "list[range]"
"""Neighbouring dimensions that become one; dimensions of size 1 may be in none."""


@dataclass
class Operation:
    """An operation as it is asked for, and the means to append another in its place.

    append: appends any operation (code, inputs, results), whatever their ranks.
    """

    builder: ModelBuilder
    append: Append
    code: OperationCode
    inputs: list[Value]
    results: list[Value]

    @property
    def shape(self) -> Dimensions:
        """The shape of the first input."""
        return self.inputs[0].shape or ()

    def emit(
        self, changed: dict[int, Value], shapes: Sequence[Dimensions], code: OperationCode | None = None
    ) -> list[Value]:
        """Append the operation with some inputs changed; return its outputs under these shapes."""
        inputs = [changed.get(position, value) for position, value in enumerate(self.inputs)]
        outputs = self.append(self.code if code is None else code, inputs, self.results)
        return [self.under(value, shape) for value, shape in zip(outputs, shapes, strict=True)]

    def under(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value under another shape of as many elements."""
        return reshaped(self.builder, value, tuple(shape))

    def again(self, *inputs: Value) -> list[Value]:
        """Append the operation with other inputs, whatever their ranks."""
        return self.append(self.code, inputs, self.results)

    def fail(self, reason: str) -> BadData:
        """Return the error of an operation that cannot be."""
        return BadData(f"{self.code.name}: {reason}")


def numbers_of(value: Value) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the integers of a constant; raises BadData."""
    if value.data is None:
        raise BadData("shapes, axes and bounds must be constants")
    return np.asarray(value.data, np.int64)


def number_of(value: Value) -> int:
    """Return the integer of a constant that has one; raises BadData."""
    return int(numbers_of(value).reshape(-1)[0])


def per_dimension(operation: Operation, position: int) -> list[int]:
    """Return an input that has a number for each dimension of the first."""
    numbers = [int(number) for number in numbers_of(operation.inputs[position]).reshape(-1)]
    if len(numbers) != len(operation.shape):
        raise operation.fail(f"input {position} must have {len(operation.shape)} elements, got {len(numbers)}")
    return numbers


def axis_of(operation: Operation, axis: int) -> int:
    """Return an axis of the first input counted from the front; raises BadData."""
    rank = len(operation.shape)
    if not -rank <= axis < rank:
        raise operation.fail(f"axis must be in [{-rank}, {rank}), got {axis}")
    return axis % rank


def around(shape: Dimensions, axis: int) -> Dimensions:
    """Return a shape as [before, axis, after]."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def runs(kinds: Sequence[object]) -> Groups:
    """Return the groups of neighbours of one kind; None is a dimension of size 1, which goes with any."""
    groups: Groups = []
    last: object = None
    for axis, kind in enumerate(kinds):
        if groups and (kind is None or last is None or kind == last):
            groups[-1] = range(groups[-1].start, axis + 1)
        else:
            groups.append(range(axis, axis + 1))
        last = last if kind is None else kind
    return groups


@dataclass(frozen=True)
class Block:
    """Neighbouring dimensions that become one: of those with anything to do, `axis` alone, and behind it whole ones."""

    size: int
    axis: int
    rest: int
    """Elements behind each index of the axis."""


def blocks_of(shape: Dimensions, touched: Sequence[bool]) -> list[Block]:
    """Return blocks that begin at touched dimensions; what comes before the first is one too, unless its size is 1."""
    starts = [axis for axis, is_touched in enumerate(touched) if is_touched]
    if not starts or math.prod(shape[: starts[0]]) > 1:
        starts = [0, *starts]
    stops = [*starts[1:], len(shape)]
    return [
        Block(math.prod(shape[start:stop]), start, math.prod(shape[start + 1 : stop]))
        for start, stop in zip(starts, stops, strict=True)
    ]


def sizes_of(shape: Dimensions, groups: Groups) -> Dimensions:
    """Return the sizes of dimensions that are one each."""
    return tuple(math.prod(shape[axis] for axis in group) for group in groups)


def first_alone(touched: Sequence[bool]) -> tuple[set[int], set[int]]:
    """Return the first touched axis, and the others."""
    first, *others = (axis for axis, is_touched in enumerate(touched) if is_touched)
    return {first}, set(others)
