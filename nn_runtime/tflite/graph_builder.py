# SPDX-License-Identifier: Apache-2.0
"""The NNAPI model that a converted subgraph grows into.

The rule of each emitted operation gives its output's dimensions, whatever the file says of intermediate tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.model import Model
from nn_runtime.operand import OperandType, dtype_of
from nn_runtime.operations import OperationView, output_dimensions, validate
from nn_runtime.tflite.booleans import as_integers, booleans_of
from nn_runtime.tflite.list_items import Items, Lists
from nn_runtime.tflite.ranks import emit_beyond, is_beyond
from nn_runtime.tflite.values import int32, int32_vector, operand_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.values import Value


MAX_MADE = 1 << 26
MAX_UNROLLED = 1 << 12
MAX_INLINED = 1 << 14


class Budget:
    """What a conversion may still make, as a small file can ask for much: elements of constants, operators."""

    def __init__(self) -> None:
        """Start with all of it."""
        self._left = MAX_MADE
        self.operators = MAX_UNROLLED
        """Of loops that are unrolled, also of an operator's own."""
        self._inlined = MAX_INLINED

    def spend(self, count: int) -> None:
        """Take elements away, before there is memory for them; raises BadData."""
        self._left -= count
        if self._left < 0:
            raise BadData(f"more than {MAX_MADE} elements of constants that are not in the file")

    def inline(self, operators: int) -> None:
        """Take operators of a composite away, as each call of a subgraph makes them again; raises BadData."""
        self._inlined -= operators
        if self._inlined < 0:
            raise BadData(f"more than {MAX_INLINED} operators in composites")


class GraphBuilder:
    """Grows an NNAPI model; every value gets its operand at its first use, so that unused constants cost nothing."""

    def __init__(self, budget: Budget) -> None:
        """Start with an empty model."""
        self.model = Model()
        self.budget = budget
        self.lists = Lists()
        self.has_weights_of_bytes = False
        """Whether real numbers are multiplied with weights of 8 bits somewhere: "dynamic range quantisation"."""
        self._indices: dict[Value, int] = {}
        self._bytes: dict[int, Value] = {}
        self._repeated: dict[tuple[int, Dimensions | None, Dimensions], Value] = {}

    def index(self, value: Value) -> int:
        """Return the operand of a value; raises BadData for a type or size that no operand has."""
        if value not in self._indices:
            dims = value.dimensions or ()
            index = self.model.add_operand(
                OperandType(value.type, dims, value.scale, value.zero_point, value.channel_quant)
            )
            if value.referenced is not None:
                self.model.set_operand_value_from_model(index, value.referenced.model)
            elif value.omitted:
                self.model.set_operand_value(index, None)
            elif value.data is not None:
                self.model.set_operand_value(index, np.ascontiguousarray(value.data, dtype_of(value.type)))
            self._indices[value] = index
        return self._indices[value]

    def alias(self, value: Value, other: Value) -> None:
        """Let another value stand for the same operand."""
        self._indices[other] = self.index(value)

    def emit(self, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        """Append an operation and return its outputs: typed as `results`, with the dimensions of its shape rule."""
        for value in inputs:
            if value.data is not None and not value.data.size:
                raise BadData(f"{code.name}: an empty input of shape {list(value.shape or ())} is not supported")
        return (
            emit_beyond(self, code, inputs, results) if is_beyond(code, inputs) else self._append(code, inputs, results)
        )

    def reshaped(self, value: Value, shape: Dimensions) -> Value:
        """Return a value under another shape of as many elements, by RESHAPE where the operand's dimensions change."""
        if value.data is not None:
            return replace(value, shape=shape, data=value.data.reshape(shape))
        if value.shape == shape:
            return value
        dims = operand_dimensions(shape)
        if dims != value.dimensions:
            plain = as_integers(self, self._renamed(value, value.dimensions or ()))
            moved = self._append(OperationCode.RESHAPE, [plain, int32_vector(dims)], [plain])[0]
            value = booleans_of(self, moved) if value.type == OperandCode.TENSOR_BOOL8 else moved
        return self._renamed(value, shape)

    def repeated(self, value: Value, shape: Dimensions, repeat: Callable[[], Value]) -> Value:
        """Return a value that the run computes, repeated to a shape: once for all that read it so."""
        key = self.index(value), value.shape, shape  # of five dimensions and more, several shapes are one operand
        if key not in self._repeated:
            self._repeated[key] = repeat()
        return self._repeated[key]

    def keep_bytes(self, value: Value, bytes_: Value) -> None:
        """Remember the bytes 0 and 1 that a boolean value is made of, or was made."""
        self._bytes[self.index(value)] = bytes_

    def bytes_of(self, value: Value) -> Value | None:
        """Return the bytes 0 and 1 that stand for a boolean value, if there are any."""
        bytes_ = self._bytes.get(self.index(value))
        return bytes_ if bytes_ is None or bytes_.shape == value.shape else self.reshaped(bytes_, value.shape or ())

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

    def _renamed(self, value: Value, shape: Dimensions) -> Value:
        """Return the same operand under another shape of the same dimensions."""
        renamed = replace(value, shape=shape)
        self.alias(value, renamed)
        return renamed

    def _append(self, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        operation = OperationView(code, inputs, results)
        validate(operation)
        outputs = []
        for prototype, dims in zip(results, output_dimensions(operation), strict=False):
            if 0 in dims:
                raise BadData(f"{code.name}: an empty result of shape {list(dims)} is not supported")
            keeps = prototype.shape is not None and prototype.dimensions == dims
            outputs.append(replace(prototype, shape=prototype.shape if keeps else dims, data=None))
        indices = [self.index(value) for value in inputs]
        self.model.add_operation(code, indices, [self.index(value) for value in outputs])
        return outputs


def identity(builder: GraphBuilder, value: Value) -> Value:
    """Return a copy of a value (CAST to its own type)."""
    copy = builder.emit(OperationCode.CAST, [value], [replace(value, shape=None, data=None)])[0]
    if value.shape != ():
        return copy
    renamed = replace(copy, shape=())
    builder.alias(copy, renamed)
    return renamed
