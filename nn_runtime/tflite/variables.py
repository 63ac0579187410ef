# SPDX-License-Identifier: Apache-2.0
"""What a network keeps between runs while it is converted: variable tensors, and resource variables by name.

NNAPI's models have no state: what the first operator reads becomes an input of the model, what the last one assigns an
output, and the session hands one to the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.tensor_reader import quoted
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.tflite.types import TfliteOperator, TfliteSubgraph
    from nn_runtime.tflite.values import Value


class Resource(NamedTuple):
    """What a handle stands for."""

    container: str
    shared_name: str

    def __str__(self) -> str:
        return quoted(f"{self.container}/{self.shared_name}" if self.container else self.shared_name)


def resource_of(operator: TfliteOperator) -> Resource:
    """Return the variable that a VAR_HANDLE names."""
    return Resource(*(str(operator.options.get(name, "")) for name in Resource._fields))


def resources(subgraph: TfliteSubgraph) -> set[Resource]:
    """Return the variables that a subgraph names."""
    return {resource_of(operator) for operator in subgraph.operators if operator.code == BuiltinOperator.VAR_HANDLE}


Key: TypeAlias = "int | Resource"
"""A variable tensor's index, or a resource."""


@dataclass
class Variable:
    """The model's input (None if no operator reads what the last run left), the present value, the first one.

    Without a first value it is zero.
    """

    source: Value | None
    current: Value
    initial: Value | None = None


def _kind(value: Value) -> str:
    return f"{OperandCode(value.type).name} {list(value.shape or ())}"


class Variables:
    """The variables of one subgraph, in the order of their first use."""

    def __init__(self) -> None:
        """Start with none."""
        self._variables: dict[Key, Variable] = {}
        self._handles: dict[int, Resource] = {}

    def __bool__(self) -> bool:
        return bool(self._variables)

    def kept(self) -> list[tuple[Key, Variable]]:
        """Return those that must be kept between runs, and what each is of."""
        return [(key, variable) for key, variable in self._variables.items() if variable.source is not None]

    def add_handle(self, index: int, resource: Resource) -> None:
        """Note what a tensor is a handle of."""
        self._handles[index] = resource

    def resource(self, index: int) -> Resource | None:
        """Return what a tensor is a handle of, if it is one."""
        return self._handles.get(index)

    def tensor(self, index: int, fresh: Value) -> Value:
        """Return the present value of a variable tensor; `fresh` is its source at the first use."""
        variable = self._variables.setdefault(index, Variable(fresh, fresh))
        if variable.source is None and variable.current is variable.initial:
            if (variable.current.type, variable.current.shape) != (fresh.type, fresh.shape):
                raise BadData(f"variable tensor {index} must begin with {_kind(fresh)}, got {_kind(variable.current)}")
            variable.source = variable.current = fresh
        return variable.current

    def begin(self, index: int, initial: Value) -> None:
        """Give a variable tensor its first value; raises BadData where it is used before."""
        if index in self._variables:
            raise BadData(f"variable tensor {index} gets its first value after it is used")
        self._variables[index] = Variable(None, initial, initial)

    def read(self, resource: Resource) -> Value:
        """Return the present value of a resource; raises BadData where none can be known."""
        variable = self._variables.get(resource)
        if variable is None:
            raise BadData(f"variable {resource} is read before anything assigns it")
        if variable.source is None and variable.current is variable.initial:
            variable.source = variable.current = replace(variable.current, data=None)
        return variable.current

    def present(self, key: Key) -> Value | None:
        """Return the present value without reading it, None where there is none."""
        return self._variables[key].current if key in self._variables else None

    def assign(self, key: Key, value: Value) -> None:
        """Give a variable its next value."""
        if key in self._variables:
            self._variables[key].current = value
        else:
            self._variables[key] = Variable(None, value)

    def initialise(self, initialised: Variables) -> None:
        """Take the values that the variables of an initialisation subgraph have after it as first ones."""
        for key, variable in initialised._variables.items():
            if not isinstance(key, Resource) or variable.current.data is None:
                what = f"variable {key}" if isinstance(key, Resource) else f"variable tensor {key}"
                raise BadData(f"{what} must be assigned a constant by the initialisation subgraph")
            known = self._variables.get(key)
            if known is not None and known.current is not known.initial:
                raise BadData(f"variable {key} is initialised after it is used")
            self._variables[key] = Variable(None, variable.current, variable.current)
