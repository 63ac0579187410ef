# SPDX-License-Identifier: Apache-2.0
"""What the file says of an operator: its inputs and options, checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

from nn_runtime.codes import FuseCode, OperandCode
from nn_runtime.errors import BadData
from nn_runtime.tflite.tensor_reader import MAX_RANK
from nn_runtime.tflite.values import tensor_value

if TYPE_CHECKING:
    from collections.abc import Collection

    from nn_runtime.operand import Array
    from nn_runtime.tflite.graph_builder import GraphBuilder
    from nn_runtime.tflite.terms import Term
    from nn_runtime.tflite.types import TfliteOperator, TfliteSubgraph, TfliteTensor
    from nn_runtime.tflite.values import Value
    from nn_runtime.tflite.variables import Variables

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
TANH, SIGN_BIT = 4, 5
"""Fused activations that NNAPI does not have."""


class OperatorInputs:
    """One operator of the file and the values that it reads. Every check that fails raises BadData."""

    def __init__(
        self,
        operator: TfliteOperator,
        subgraph: TfliteSubgraph,
        builder: GraphBuilder,
        values: dict[int, Value],
        variables: Variables,
    ) -> None:
        """`values` go by tensor index; those of constants are added at their first use."""
        self.code = operator.code
        self.custom_code = operator.custom_code
        self.custom_options = operator.custom_options
        self._operator = operator
        self._tensors = subgraph.tensors
        self._builder = builder
        self._values = values
        self._variables = variables

    @property
    def input_count(self) -> int:
        """Number of inputs that the file lists."""
        return len(self._operator.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs that the file lists."""
        return len(self._operator.outputs)

    def fail(self, reason: str) -> NoReturn:
        """Refuse the operator."""
        raise BadData(reason)

    def spend(self, count: int) -> None:
        """Count elements of a constant that the file does not have, before it is made; there is a limit for all."""
        self._builder.budget.spend(count)

    def check_version(self, newest: int) -> None:
        """Refuse a version after the newest known one, as TFLite does: it may mean anything."""
        version = self._operator.version
        if not 1 <= version <= newest:
            self.fail(f"version must be 1 to {newest}, got {version}")

    def check_input_count(self, most: int | None) -> None:
        """Refuse more inputs than `most`, None for any number; trailing ones that the file leaves out do not count."""
        count = max((position + 1 for position, index in enumerate(self._operator.inputs) if index >= 0), default=0)
        if most is not None and count > most:
            self.fail(f"must have at most {most} inputs, got {count}")

    def check_output_count(self, count: int | None) -> None:
        """Refuse another number of outputs than `count`, None for any number."""
        if count is not None and self.output_count != count:
            self.fail(f"must have {count} outputs, got {self.output_count}")

    def optional(self, position: int) -> Value | None:
        """Return an input, or None where the file leaves it out."""
        value = self.unmade(position)
        return None if value is None else self._builder.made(value)

    def unmade(self, position: int) -> Value | None:
        """Return an input that may be a list to which only more items are added."""
        index = self._operator.inputs[position] if position < self.input_count else -1
        if index < 0:
            return None
        if index not in self._values and self._tensors[index].is_variable:
            return self._variables.tensor(index, tensor_value(self._tensors[index]))
        if index not in self._values:
            self._values[index] = tensor_value(self._tensors[index])
        return self._values[index]

    def input(self, position: int, name: str, rank: int | None = None) -> Value:
        """Return an input, of that rank if given."""
        value = self.optional(position)
        if value is None:
            self.fail(f"{name} (input {position}) is missing")
        if rank is not None and value.rank != rank:
            self.fail(f"{name} (input {position}) must have rank {rank}, got {list(value.shape or ())}")
        return value

    def input_tensor(self, position: int) -> TfliteTensor:
        """Return an input, which is not left out, as the file has it."""
        return self._tensors[self._operator.inputs[position]]

    def is_constant(self, position: int) -> bool:
        """Tell whether an input's value is known."""
        value = self.optional(position)
        return value is not None and value.data is not None

    def array(self, position: int, name: str) -> Array:
        """Return the value of an input that must be a constant."""
        data = self.input(position, name).data
        if data is None:
            self.fail(f"{name} (input {position}) must be a constant")
        return data

    def integers(self, position: int, name: str) -> list[int]:
        """Return the elements of a constant integer input."""
        data = self.array(position, name)
        if data.dtype.kind != "i":
            self.fail(f"{name} (input {position}) must be of integers, got {data.dtype}")
        return [int(element) for element in data.reshape(-1)]

    def by_dimension(self, position: int, name: str) -> list[int]:
        """Return a constant integer input that has at most one element for each dimension of a tensor."""
        data = self.array(position, name)
        if data.size > MAX_RANK:
            self.fail(f"{name} (input {position}) must have {MAX_RANK} elements at most, got {data.size}")
        return self.integers(position, name)

    def terms(self, position: int, name: str) -> tuple[Term, ...]:
        """Return integers, at most one for each dimension of a tensor, as far as they are known before the run."""
        value = self.input(position, name)
        if value.data is not None:
            self.by_dimension(position, name)
        elif value.type != OperandCode.TENSOR_INT32 or math.prod(value.shape or ()) > MAX_RANK:
            given = f"{OperandCode(value.type).name} {list(value.shape or ())}"
            self.fail(f"{name} (input {position}) must be {MAX_RANK} integers at most, got {given}")
        return self._builder.terms.of(value)

    def known_terms(self, position: int) -> tuple[Term, ...]:
        """Return the integers of an input, of which there are few, as far as they are known before the run."""
        return self._builder.terms.of(self.input(position, f"input {position}"))

    def integer(self, position: int, name: str) -> int:
        """Return a constant integer input of one element."""
        values = self.integers(position, name)
        if len(values) != 1:
            self.fail(f"{name} (input {position}) must have one element, got {len(values)}")
        return values[0]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < rank:
            self.fail(f"axis must be in [{-rank}, {rank}), got {axis}")
        return axis % rank

    def option(self, name: str) -> int:
        """Return an integer option (0 where the file has no options)."""
        value = self._operator.options.get(name, 0)
        return int(value) if isinstance(value, int | float) else 0

    def real_option(self, name: str) -> float:
        """Return a float option."""
        value = self._operator.options.get(name, 0.0)
        return float(value) if isinstance(value, int | float) else 0.0

    def integer_options(self, name: str) -> list[int]:
        """Return a vector option."""
        value = self._operator.options.get(name, ())
        return [int(element) for element in value] if isinstance(value, tuple) else []

    def real_options(self, name: str) -> list[float]:
        """Return a vector option of floats."""
        value = self._operator.options.get(name, ())
        return [float(element) for element in value] if isinstance(value, tuple) else []

    def activation(self, refused: Collection[int] = ()) -> FuseCode:
        """Return the fused activation. Others than NNAPI's are none to LiteRT's kernels, but for those refused."""
        number = self.option("fused_activation_function")
        if number in refused:
            self.fail(f"fused activation {number} ({ACTIVATIONS[number]}) is not supported")
        return FuseCode(number) if number in FuseCode.__members__.values() else FuseCode.NONE

    def output_tensor(self, position: int = 0) -> TfliteTensor:
        """Return what the file says of an output."""
        return self._tensors[self._operator.outputs[position]]
