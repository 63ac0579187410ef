# SPDX-License-Identifier: Apache-2.0
"""Signatures as data, and the view of one operation that validation, shape rules and both drivers share.

A family's file calls `define(Definition(...))` once per operation: input lists (one `Variant` per alternative list),
outputs, the data types with the feature level that brought each, a `check` for what the rows cannot say, and `prepare`,
the rule for the output dimensions. Inputs are looked up by name, so that code does not depend on the variant's order.

Source of the rows: NeuralNetworksTypes.h and the operation specifications of Android 13 (CONTRIBUTING.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import NoReturn

from nn_runtime.codes import (
    FeatureLevel,
    FuseCode,
    OperandCode,
    OperationCode,
    operand_type_name,
    operation_name,
)
from nn_runtime.errors import BadData
from nn_runtime.families import WITH_CONTROL_FLOW, Families
from nn_runtime.operand import Array, Dimensions, OperandView, is_tensor
from nn_runtime.value_classes import dataclass

TypeRule = Callable[[int], Iterable[int]]
"""Which operand types an argument may have, given the operation's data type."""

Rank = tuple[int, int]
"""Least and greatest rank, both included."""

ANY_RANK: Rank = (1, 2**31)
UP_TO_4: Rank = (1, 4)


def same_as_data(data_type: int) -> tuple[int]:
    """Allow the data type itself."""
    return (data_type,)


def float_scalar(data_type: int) -> tuple[int]:
    """Allow FLOAT16 with TENSOR_FLOAT16 data, FLOAT32 with any other."""
    return (OperandCode.FLOAT16 if data_type == OperandCode.TENSOR_FLOAT16 else OperandCode.FLOAT32,)


def bias_of_data(data_type: int) -> tuple[int]:
    """Allow the data type for floats, TENSOR_INT32 for quantised data."""
    floats = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)
    return (data_type,) if data_type in floats else (OperandCode.TENSOR_INT32,)


@functools.cache
def only(*codes: OperandCode) -> TypeRule:
    """Allow the given types, whatever the data type."""
    return lambda _data_type: codes


INT32 = only(OperandCode.INT32)
BOOL = only(OperandCode.BOOL)
INT32_TENSOR = only(OperandCode.TENSOR_INT32)


@dataclass(frozen=True)
class Input:
    """One input of a variant.

    `optional`: may be left off the tail of the list. `omittable`: may have no value. `parameter`: a tensor whose value
    (not only its shape) must be known to lower the operation or to find its output shape; scalars always are.
    """

    name: str
    types: TypeRule = same_as_data
    rank: Rank | None = None
    optional: bool = False
    omittable: bool = False
    parameter: bool = False
    since: FeatureLevel = FeatureLevel.HAL_1_0


@dataclass(frozen=True)
class Variant:
    """One input list.

    `counts`: legal lengths (default: any cut of the optional tail). `repeated`: name of an input that may occur any
    number of times in its place (CONCATENATION).
    """

    inputs: tuple[Input, ...]
    counts: tuple[int, ...] = ()
    repeated: str = ""
    name: str = ""

    def expand(self, count: int) -> tuple[Input, ...] | None:
        """Return the inputs for a list of `count` operands, or None if that length is not legal."""
        if self.repeated:
            return self._expand_repeated(count)
        required = sum(not argument.optional for argument in self.inputs)
        legal = self.counts or range(required, len(self.inputs) + 1)
        return self.inputs[:count] if count in legal else None

    def _expand_repeated(self, count: int) -> tuple[Input, ...] | None:
        times = count - len(self.inputs) + 1
        if times < 1:
            return None
        at = next(i for i, argument in enumerate(self.inputs) if argument.name == self.repeated)
        return self.inputs[:at] + (self.inputs[at],) * times + self.inputs[at + 1 :]


@dataclass(frozen=True)
class Output:
    """One output."""

    name: str
    types: TypeRule = same_as_data
    rank: Rank | None = None


@dataclass(frozen=True)
class Definition:
    """Everything drivers share about one operation.

    `data_types` maps each type of the data input (`data_input`, by index) to the feature level that brought it.
    `check` raises through `op.fail` and returns the feature level that special uses need. `prepare` gets known
    dimensions and parameter values and returns the dimensions of each output. `output_counts` is () for exactly
    `outputs`, otherwise the legal counts; a `repeated_output` operation takes any number >= 1. The outputs of a
    `data_dependent` operation may be smaller than `prepare` says: their dimensions are known when it has run.
    """

    code: OperationCode
    variants: tuple[Variant, ...]
    outputs: tuple[Output, ...]
    data_types: Mapping[int, FeatureLevel]
    prepare: Callable[[OperationView], tuple[Dimensions, ...]]
    check: Callable[[OperationView], FeatureLevel] = field(default=lambda _op: FeatureLevel.HAL_1_0)
    data_input: int = 0
    output_counts: tuple[int, ...] = ()
    repeated_output: bool = False
    zero_sized_ok: bool = False
    data_dependent: bool = False


class OperationView:
    """One operation with its operands: what every rule, lowering and reference function is written against."""

    def __init__(
        self, code: int, inputs: Sequence[OperandView], outputs: Sequence[OperandView], index: int | None = None
    ) -> None:
        """Keep code and operands; `index` is the operation's place in its model, for messages."""
        self.code = code
        self.inputs = inputs
        self.outputs = outputs
        self.index = index

    @functools.cached_property
    def definition(self) -> Definition:
        """The operation's definition; raises BadData for an unknown code."""
        return definition(self.code)

    @functools.cached_property
    def arguments(self) -> tuple[Input, ...]:
        """The input list that the operands fit, one entry per operand; raises BadData if there is none."""
        return _match(self)

    @property
    def data_type(self) -> int:
        """Type of the data input."""
        return self.inputs[self.definition.data_input].type

    @property
    def label(self) -> str:
        """`operation 7 SOFTMAX`, or the bare name without an index."""
        name = operation_name(self.code)
        return name if self.index is None else f"operation {self.index} {name}"

    def position(self, name: str) -> int:
        """Return the index of the (first) input called `name`, or -1 if the list has none."""
        return self._positions.get(name, -1)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        """The first index of each name."""
        return {argument.name: i for i, argument in reversed(list(enumerate(self.arguments)))}

    def input(self, name: str) -> OperandView:
        """Return the input called `name`; raises BadData if it is absent or omitted."""
        operand = self.optional(name)
        if operand is None:
            raise BadData(f"{self.label}: input {name} is missing")
        return operand

    def optional(self, name: str) -> OperandView | None:
        """Return the input called `name`, or None if it is absent or has no value."""
        at = self.position(name)
        return None if at < 0 or self.inputs[at].omitted else self.inputs[at]

    def all_inputs(self, name: str) -> Sequence[OperandView]:
        """Return every input called `name` (a repeated one)."""
        pairs = zip(self.arguments, self.inputs, strict=True)
        return [operand for argument, operand in pairs if argument.name == name]

    def array(self, name: str) -> Array:
        """Return the value of an input; raises BadData if it is not known."""
        value = self.input(name).value()
        if value is None:
            raise BadData(f"{self.label}: the value of input {name} is not known")
        return value

    def int_value(self, name: str, default: int | None = None) -> int:
        """Return an integer scalar, or the default where it is absent."""
        if default is not None and self.optional(name) is None:
            return default
        return int(self.array(name).reshape(-1)[0])

    def float_value(self, name: str, default: float | None = None) -> float:
        """Return a float scalar, or the default where it is absent."""
        if default is not None and self.optional(name) is None:
            return default
        return float(self.array(name).reshape(-1)[0])

    def bool_value(self, name: str, default: bool = False) -> bool:
        """Return a bool scalar, or the default where it is absent."""
        return default if self.optional(name) is None else bool(self.array(name).reshape(-1)[0])

    def int_values(self, name: str) -> list[int]:
        """Return the elements of an integer tensor."""
        return [int(element) for element in self.array(name).reshape(-1)]

    def fuse_code(self, name: str = "activation") -> FuseCode:
        """Return a fused activation; raises BadData for a number that is none."""
        value = self.int_value(name)
        if value not in FuseCode.__members__.values():
            self.fail(name, "must be a fuse code 0 to 3", value)
        return FuseCode(value)

    def dimensions(self, name: str) -> Dimensions:
        """Return the known dimensions of an input; raises BadData if the rank is unknown."""
        found = self.input(name).dimensions
        if found is None:
            raise BadData(f"{self.label}: the rank of input {name} is not known")
        return found

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """Return an axis argument in [0, rank); raises BadData outside [-rank, rank)."""
        return self.normalized_axis(name, self.int_value(name, default), rank)

    def normalized_axis(self, name: str, axis: int, rank: int) -> int:
        """Return `axis` counted from the front; raises BadData naming input `name`."""
        if not -rank <= axis < rank:
            self.fail(name, f"must be in [{-rank}, {rank})", axis)
        return axis % rank

    def fail(self, name: str, wanted: str, got: object) -> NoReturn:
        """Raise BadData: `operation 7 SOFTMAX: beta (input 1) must be > 0, got -1.0`."""
        at = self.position(name)
        where = f"{name} (input {at})" if at >= 0 else name
        raise BadData(f"{self.label}: {where} {wanted}, got {got}")

    def shape_inputs(self) -> list[int]:
        """Return the indices of the inputs whose values, not only shapes, must be known before it can be lowered."""
        return [
            i
            for i, (argument, operand) in enumerate(zip(self.arguments, self.inputs, strict=True))
            if not operand.omitted and (argument.parameter or not is_tensor(operand.type))
        ]


_registry: dict[int, Definition] = {}
_families = Families(__name__.rpartition(".")[0], WITH_CONTROL_FLOW)


def define(entry: Definition) -> Definition:
    """Add a definition; raises ValueError if its code has one already."""
    if entry.code in _registry:
        raise ValueError(f"{entry.code.name} is defined twice")
    _registry[entry.code] = entry
    return entry


def definitions() -> Mapping[int, Definition]:
    """Return every definition by code."""
    _families.load_all()
    return _registry


def definition(code: int) -> Definition:
    """Return the definition of a code; raises BadData if there is none."""
    _families.load(code)
    found = _registry.get(code)
    if found is None:
        raise BadData(f"{operation_name(code)}: no such operation in this runtime")
    return found


def validate(op: OperationView) -> FeatureLevel:
    """Check counts, types, ranks and the family's own rules; return the feature level the operation needs.

    Raises BadData naming operation, operand, wanted and got.
    """
    arguments = op.arguments
    levels = [op.definition.data_types.get(op.data_type, FeatureLevel.HAL_1_0)]
    for at, (argument, operand) in enumerate(zip(arguments, op.inputs, strict=True)):
        # A model input that may be left out at execution is declared with shape [0], whatever its rank.
        if not (argument.omittable and operand.dimensions == (0,)):
            _check_rank(op, f"{argument.name} (input {at})", argument.rank, operand)
        if operand.omitted and not argument.omittable:
            raise BadData(f"{op.label}: {argument.name} (input {at}) must have a value")
        levels.append(argument.since)
    _check_outputs(op)
    levels.append(op.definition.check(op))
    return max(levels)


def output_dimensions(op: OperationView) -> tuple[Dimensions, ...]:
    """Return the dimensions of every output from known input dimensions and parameter values; raises BadData."""
    return op.definition.prepare(op)


def _match(op: OperationView) -> tuple[Input, ...]:
    entry = op.definition
    if len(op.inputs) <= entry.data_input:
        raise BadData(f"{op.label}: needs {_legal_counts(entry)} inputs, got {len(op.inputs)}")
    fits = [inputs for inputs in (variant.expand(len(op.inputs)) for variant in entry.variants) if inputs]
    if not fits:
        raise BadData(f"{op.label}: needs {_legal_counts(entry)} inputs, got {len(op.inputs)}")
    data_type = op.data_type
    misfits = [_first_misfit(inputs, op.inputs, data_type) for inputs in fits]
    for inputs, misfit in zip(fits, misfits, strict=True):
        if misfit is None:
            if data_type not in entry.data_types:
                break
            return inputs
    if data_type not in entry.data_types:
        wanted = ", ".join(operand_type_name(code) for code in entry.data_types)
        name = fits[0][entry.data_input].name
        got = operand_type_name(data_type)
        raise BadData(f"{op.label}: {name} (input {entry.data_input}) must be one of {wanted}, got {got}")
    deepest = max(range(len(fits)), key=lambda i: misfits[i] or 0)
    at = misfits[deepest] or 0
    argument = fits[deepest][at]
    wanted = " or ".join(operand_type_name(code) for code in argument.types(data_type))
    raise BadData(
        f"{op.label}: {argument.name} (input {at}) must be {wanted}, got {operand_type_name(op.inputs[at].type)}"
    )


def _first_misfit(inputs: tuple[Input, ...], operands: Sequence[OperandView], data_type: int) -> int | None:
    for at, (argument, operand) in enumerate(zip(inputs, operands, strict=True)):
        if operand.type not in argument.types(data_type):
            return at
    return None


def _legal_counts(entry: Definition) -> str:
    if any(variant.repeated for variant in entry.variants):
        return f"at least {len(entry.variants[0].inputs)}"
    counts = sorted(
        {n for variant in entry.variants for n in range(len(variant.inputs) + 1) if variant.expand(n) is not None}
    )
    return " or ".join(str(count) for count in counts)


def _check_rank(op: OperationView, where: str, rank: Rank | None, operand: OperandView) -> None:
    if rank is None or not operand.dimensions or operand.omitted:
        return
    low, high = rank
    if not low <= len(operand.dimensions) <= high:
        wanted = str(low) if low == high else f"at least {low}" if high >= ANY_RANK[1] else f"{low} to {high}"
        raise BadData(f"{op.label}: {where} must have rank {wanted}, got {list(operand.dimensions)}")


def _check_outputs(op: OperationView) -> None:
    entry = op.definition
    rows = entry.outputs
    if entry.repeated_output:
        rows = rows * max(1, len(op.outputs))
    counts = entry.output_counts or (len(rows),)
    if len(op.outputs) not in counts:
        wanted = " or ".join(str(count) for count in counts)
        raise BadData(f"{op.label}: needs {wanted} outputs, got {len(op.outputs)}")
    for at, (row, operand) in enumerate(zip(rows, op.outputs, strict=False)):
        allowed = list(row.types(op.data_type))
        if operand.type not in allowed:
            wanted = " or ".join(operand_type_name(code) for code in allowed)
            raise BadData(f"{op.label}: output {at} must be {wanted}, got {operand_type_name(operand.type)}")
        _check_rank(op, f"output {at}", row.rank, operand)
