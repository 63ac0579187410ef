# SPDX-License-Identifier: Apache-2.0
"""A model that grows by operations on tensors as files have them: of any rank, and lists of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.tflite import ranks
from nn_runtime.tflite.list_items import Items, Lists
from nn_runtime.tflite.model_builder import Budget, ModelBuilder
from nn_runtime.tflite.terms import Terms
from nn_runtime.tflite.values import int32, int32_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.values import Value


class GraphBuilder(ModelBuilder):
    """Grows the model of a subgraph."""

    def __init__(self, budget: Budget) -> None:
        """Start with an empty model."""
        super().__init__(budget)
        self.lists = Lists()
        self.terms = Terms()
        self.has_weights_of_bytes = False
        """Whether real numbers are multiplied with weights of 8 bits somewhere: "dynamic range quantisation"."""
        self._repeated: dict[tuple[int, Dimensions | None, Dimensions], Value] = {}

    def emit(self, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        """Append an operation on tensors of any rank and return its outputs, typed as `results`."""
        return ranks.emit(self, code, inputs, results)

    def repeated(self, value: Value, shape: Dimensions, repeat: Callable[[], Value]) -> Value:
        """Return a value that the run computes, repeated to a shape: once for all that read it so."""
        key = self.index(value), value.shape, shape  # of five dimensions and more, several shapes are one operand
        if key not in self._repeated:
            self._repeated[key] = repeat()
        return self._repeated[key]

    def made(self, value: Value) -> Value:
        """Return a value that can be read: of a list, the rows that it had joined with the items of a loop."""
        return self.lists.made(value, self._joined)

    def _joined(self, pending: Items) -> Value:
        base, rows = pending.base, []
        like, shape, end = replace(base, shape=None, data=None), base.shape or (), 0
        for index in (*sorted(pending.items), (base.shape or (0,))[0]):
            if index > end:
                bounds = [end, *[0] * (len(shape) - 1)], [index - end, *shape[1:]]
                rows += self.emit(OperationCode.SLICE, [base, *map(int32_vector, bounds)], [like])
            if index in pending.items:
                rows.append(pending.items[index])
            end = index + 1
        return self.emit(OperationCode.CONCATENATION, [*rows, int32(0)], [like])[0]


def identity(builder: GraphBuilder, value: Value) -> Value:
    """Return a copy of a value (CAST to its own type)."""
    copy = builder.emit(OperationCode.CAST, [value], [replace(value, shape=None, data=None)])[0]
    if value.shape != ():
        return copy
    renamed = replace(copy, shape=())
    builder.alias(copy, renamed)
    return renamed
