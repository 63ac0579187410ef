# SPDX-License-Identifier: Apache-2.0
"""Operations on groups of few numbers: group normalisation sees pixels as [groups, channels of a group].

Their rows are too short for vectors. A mean over everything but the groups becomes one over whole pixels and one of
what that leaves; a number for every group is repeated for its channels, so that rows of whole pixels have a vector.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.launchers.broadcast import broadcast
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.reduce import merged_axes, reduction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operation
    from nn_runtime.operand import Dimensions

_PAIRWISE = frozenset(
    {
        OperationCode.ADD,
        OperationCode.DIV,
        OperationCode.MAXIMUM,
        OperationCode.MINIMUM,
        OperationCode.MUL,
        OperationCode.PRELU,
        OperationCode.SUB,
    }
)
_VECTOR, _ROW = 16, 64
"""Numbers that kernels compute at once, and those of a row that is long enough."""
_LEAST_ELEMENTS = 4096
"""With fewer, more operations would cost more than short rows."""
_LEAST_SHARE = 4
"""So many times fewer than the operation reads are written besides."""


def split_groups(graph: Graph) -> None:
    """Rewrite means over all but groups, and operations with a number for each group. The last that a graph sees."""
    for at, operation in list(graph.operations.items()):
        if operation.type == OperationCode.MEAN and graph.fits(at):
            _split_mean(graph, at)
        elif operation.type in _PAIRWISE and not graph.has_table(at) and graph.fits(at):
            _repeat_numbers(graph, at)


def _split_mean(graph: Graph, at: int) -> None:
    """Take the mean of [.., rows, groups, depth] over rows and depth as that over rows, and then that of groups."""
    operation = graph.operations[at]
    source = graph.operand(operation.inputs[0])
    sizes, reduced = merged_axes(source.dimensions, reduction(graph.view(at)).axes)
    last = len(sizes) - 1
    if source.type != OperandCode.TENSOR_FLOAT32 or reduced != [last - 2, last]:
        return
    *outer, rows, groups, depth = sizes
    images, together = math.prod(outer), _rows_together(rows, groups * depth)
    row = together * groups * depth
    if row < _VECTOR or math.prod(sizes) < _LEAST_ELEMENTS or rows < _LEAST_SHARE * together:
        return
    steps = _Steps(graph, at)
    pixels = steps.mean(steps.reshaped(operation.inputs[0], (images, rows // together, row)), (1,))
    if together == 1:
        means = steps.mean(steps.reshaped(pixels, (images * groups, depth)), (1,))
    else:
        means = steps.mean(steps.reshaped(pixels, (images, together, groups, depth)), (1, 3))
    steps.end_with(means)


def _repeat_numbers(graph: Graph, at: int) -> None:
    """Repeat a number for each group, [.., 1, groups, 1] beside [.., rows, groups, depth], over its row."""
    operation = graph.operations[at]
    dims = [graph.operand(one).dimensions for one in operation.inputs[:2]]
    shape = broadcast(dims[0], dims[1], graph.operand(operation.outputs[0]).dimensions)
    strides = (0, *shape.strides0), (0, *shape.strides1)
    ends = [one[-3:] for one in strides]
    if (0, 1, 0) not in ends or not 1 < shape.sizes[-1] < _ROW:
        return
    *outer, rows, groups, depth = (1, *shape.sizes)
    which = ends.index((0, 1, 0))
    images, together = math.prod(outer), _rows_together(rows, groups * depth)
    if math.prod(dims[which]) != images * groups or math.prod(dims[1 - which]) != math.prod(shape.sizes):
        return
    is_large = math.prod(shape.sizes) >= _LEAST_ELEMENTS
    if rows < _LEAST_SHARE * together if is_large else rows > 1 or depth >= _VECTOR:
        return  # a small vector that is no step of a chain becomes one
    row = together * groups * depth
    if row < _VECTOR:
        return
    steps = _Steps(graph, at)
    numbers = steps.tiled(steps.reshaped(operation.inputs[which], (images, 1, groups, 1)), (1, together, 1, depth))
    operands = [steps.reshaped(numbers, (images, 1, row))]
    operands.insert(1 - which, steps.reshaped(operation.inputs[1 - which], (images, rows // together, row)))
    steps.end_with(steps.computed(operands, (images, rows // together, row)))


def _rows_together(rows: int, depth: int) -> int:
    """Return how many rows of a depth make one that is long enough: a divisor of their number; 1 for one of any use."""
    if depth >= _VECTOR:
        return 1
    return next((count for count in range(1, _ROW + 1) if rows % count == 0 and count * depth >= _ROW), 1)


class _Steps:
    """Operations that take the place of one."""

    def __init__(self, graph: Graph, at: int) -> None:
        """Begin with none."""
        self._graph = graph
        self._at = at
        self._operation = graph.operations[at]
        self._added: list[Operation] = []

    def reshaped(self, source: int, dims: Dimensions) -> int:
        """Return an operand in other dimensions."""
        data = self._graph.constant(source)
        if data is not None:
            return self._graph.add_constant(data.reshape(dims), source)
        return self._add(OperationCode.RESHAPE, (source, self._graph.add_numbers(dims)), source, dims)

    def mean(self, source: int, axes: tuple[int, ...]) -> int:
        """Return the means over some axes."""
        dims = self._graph.operand(source).dimensions
        kept = tuple(size for at, size in enumerate(dims) if at not in axes)
        inputs = source, self._graph.add_numbers(axes), self._graph.add_scalar(0)
        return self._add(OperationCode.MEAN, inputs, source, kept)

    def tiled(self, source: int, multiples: tuple[int, ...]) -> int:
        """Return an operand repeated along its axes."""
        data = self._graph.constant(source)
        if data is not None:
            return self._graph.add_constant(np.tile(data, multiples), source)
        dims = self._graph.operand(source).dimensions
        repeated = tuple(size * times for size, times in zip(dims, multiples, strict=True))
        return self._add(OperationCode.TILE, (source, self._graph.add_numbers(multiples)), source, repeated)

    def computed(self, operands: Sequence[int], dims: Dimensions) -> int:
        """Return what the operation makes of other operands in the place of its first two."""
        inputs = *operands, *self._operation.inputs[2:]
        return self._add(self._operation.type, inputs, self._operation.outputs[0], dims)

    def end_with(self, result: int) -> None:
        """Put the operations in the place of the one, whose output they leave."""
        (output,) = self._operation.outputs
        dims = self._graph.add_numbers(self._graph.operand(output).dimensions)
        last = replace(self._operation, type=OperationCode.RESHAPE, inputs=(result, dims), outputs=(output,))
        self._graph.split(self._at, [*self._added, last])

    def _add(self, code: int, inputs: tuple[int, ...], like: int, dims: Dimensions) -> int:
        result = self._graph.add_temporary(like, dims)
        self._added.append(replace(self._operation, type=code, inputs=inputs, outputs=(result,)))
        return result
