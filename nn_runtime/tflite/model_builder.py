# SPDX-License-Identifier: Apache-2.0
"""The NNAPI model that a converted subgraph grows into: operands of values, and operations as NNAPI has them.

The rule of each appended operation gives its output's dimensions, whatever the file says of intermediate tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.model import Model
from nn_runtime.operand import OperandType, dtype_of
from nn_runtime.operations import OperationView, output_dimensions, validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.codes import OperationCode
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


class ModelBuilder:
    """Grows an NNAPI model; every value gets its operand at its first use, so that unused constants cost nothing."""

    def __init__(self, budget: Budget) -> None:
        """Start with an empty model."""
        self.model = Model()
        self.budget = budget
        self._indices: dict[Value, int] = {}
        self._bytes: dict[int, Value] = {}

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

    def renamed(self, value: Value, shape: Dimensions) -> Value:
        """Return the same operand under another shape of the same dimensions."""
        renamed = replace(value, shape=shape)
        self.alias(value, renamed)
        return renamed

    def append(self, code: OperationCode, inputs: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        """Append an operation and return its outputs: typed as `results`, with the dimensions of its shape rule."""
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

    def finish(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Finish the model with these inputs and outputs."""
        ends = [[self.index(value) for value in values] for values in (inputs, outputs)]
        self.model.identify_inputs_and_outputs(*ends)
        self.model.finish()

    def keep_bytes(self, value: Value, bytes_: Value) -> None:
        """Remember the bytes 0 and 1 that a boolean value is made of, or was made."""
        self._bytes[self.index(value)] = bytes_

    def bytes_of(self, value: Value) -> Value | None:
        """Return the bytes 0 and 1 that stand for a boolean value, perhaps under another shape, if there are any."""
        return self._bytes.get(self.index(value))
