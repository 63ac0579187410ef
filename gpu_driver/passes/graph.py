# SPDX-License-Identifier: Apache-2.0
"""A subgraph that passes change: operations are replaced and removed in place, operands only added."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import CONTROL_FLOW, OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.types import CONSTANT_LIFETIMES, DataLocation, Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.hal.views import ModelOperand, constant_array
from nn_runtime.operand import dtype_of, has_unknown_dimensions, merge_dimensions
from nn_runtime.operations import OperationView, output_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

REDUCTIONS = frozenset(
    {
        OperationCode.MEAN,
        OperationCode.REDUCE_ALL,
        OperationCode.REDUCE_ANY,
        OperationCode.REDUCE_MAX,
        OperationCode.REDUCE_MIN,
        OperationCode.REDUCE_PROD,
        OperationCode.REDUCE_SUM,
    }
)
RESHAPES = frozenset({OperationCode.EXPAND_DIMS, OperationCode.RESHAPE, OperationCode.SQUEEZE})


@dataclass(frozen=True)
class Rewritten:
    """A subgraph after the passes. `origins`: for each operation, those of the model that it computes, first its own.

    `tables`: by place of a DEQUANTIZE, the codes [256] that it makes of codes instead of real numbers; of a MAXIMUM,
    the codes [256, 256] that it makes of two. `from_end`: places of a GATHER or EMBEDDING_LOOKUP that counts negative
    indices from the end. `sums`: places of a MEAN that is not divided. Lookups and means may make real numbers of
    8-bit values, too. Operands keep their indices; new ones come behind them.
    """

    subgraph: Subgraph
    origins: tuple[tuple[int, ...], ...]
    tables: Mapping[int, Array] = field(default_factory=dict)
    from_end: frozenset[int] = frozenset()
    sums: frozenset[int] = frozenset()

    @staticmethod
    def of(subgraph: Subgraph) -> Rewritten:
        """Return a subgraph of a model as it is."""
        return Rewritten(subgraph, tuple((at,) for at in range(len(subgraph.operations))))


class Graph:
    """Operations by the place that they have in the model, and operands by index."""

    def __init__(self, model: Model, before: Rewritten) -> None:
        """Take a subgraph of a model, which may have been rewritten before."""
        self._model = model
        subgraph = before.subgraph
        self._inputs, self._outputs = subgraph.input_indexes, subgraph.output_indexes
        self._wanted = frozenset(subgraph.output_indexes)
        self._operands = list(subgraph.operands)
        self.operations = dict(enumerate(subgraph.operations))
        self._before: dict[int, tuple[Operation, ...]] = {}
        self._origins = dict(enumerate(before.origins))
        self._tables = dict(before.tables)
        self._from_end = set(before.from_end)
        self._sums = set(before.sums)
        self._constants: dict[int, Array | None] = {}
        self._readers: dict[int, list[int]] = {}
        self._producers: dict[int, int] = {}
        for at, operation in self.operations.items():
            self._connect(at, operation)
        self._find_dimensions()

    def rewritten(self) -> Rewritten:
        """Return what is left."""
        operations: list[Operation] = []
        origins: list[tuple[int, ...]] = []
        tables = {}
        from_end, sums = set(), set()
        for at in sorted(self.operations):
            every = *self._before.get(at, ()), self.operations[at]
            operations += every
            origins += [self._origins[at]] * len(every)
            if at in self._tables:
                tables[len(operations) - 1] = self._tables[at]
            if at in self._from_end:
                from_end.add(len(operations) - 1)
            if at in self._sums:
                sums.add(len(operations) - 1)
        subgraph = Subgraph(tuple(self._operands), tuple(operations), self._inputs, self._outputs)
        return Rewritten(subgraph, tuple(origins), tables, frozenset(from_end), frozenset(sums))

    # Questions

    def operand(self, index: int) -> Operand:
        """Return an operand; its dimensions are those that the model alone tells."""
        return self._operands[index]

    def is_output(self, operand: int) -> bool:
        """Whether the model's caller gets it."""
        return operand in self._wanted

    def is_temporary(self, operand: int) -> bool:
        """Whether an operation makes it and nobody outside sees it."""
        return operand in self._producers and not self.is_output(operand)

    def is_constant(self, operand: int) -> bool:
        """Whether the model has its data."""
        return self._operands[operand].lifetime in CONSTANT_LIFETIMES

    def constant(self, operand: int) -> Array | None:
        """Return the data of a constant, or None."""
        if operand not in self._constants:
            self._constants[operand] = constant_array(self._model, self._operands[operand])
        return self._constants[operand]

    def constant_beside(self, at: int, operand: int) -> Array | None:
        """Return the data of the constant that an operation of two tensors has beside an operand."""
        others = [i for i in self.operations[at].inputs[:2] if i != operand]
        return self.constant(others[0]) if len(others) == 1 else None

    def is_known(self, operand: int) -> bool:
        """Whether its dimensions are known, and it is not empty."""
        return not has_unknown_dimensions(self._operands[operand].type, self._operands[operand].dimensions)

    def producer(self, operand: int) -> int | None:
        """Return the operation that makes an operand."""
        return self._producers.get(operand)

    def readers(self, operand: int) -> list[int]:
        """Return the operations that read an operand, each once."""
        return list(dict.fromkeys(self._readers.get(operand, ())))

    def sole_reader(self, operand: int) -> int | None:
        """Return the only operation that reads a temporary."""
        readers = self.readers(operand)
        return readers[0] if len(readers) == 1 and self.is_temporary(operand) else None

    def reader_behind_reshapes(self, operand: int) -> tuple[int | None, list[int]]:
        """Return the only operation that reads a temporary, and the reshapes through which it does."""
        reshapes: list[int] = []
        at = self.sole_reader(operand)
        while at is not None and self.operations[at].type in RESHAPES:
            reshapes.append(at)
            at = self.sole_reader(self.operations[at].outputs[0])
        return at, reshapes

    def view(self, at: int) -> OperationView:
        """Return an operation with its operands."""
        operation = self.operations[at]
        inputs = [ModelOperand(self._model, self._operands[i]) for i in operation.inputs]
        outputs = [ModelOperand(self._model, self._operands[i]) for i in operation.outputs]
        return OperationView(operation.type, inputs, outputs, self._origins[at][0])

    def fits(self, at: int) -> bool:
        """Whether all sizes of an operation are known, and those of its outputs are what its inputs say."""
        operation = self.operations[at]
        if not all(self.is_known(i) for i in (*operation.inputs, *operation.outputs) if not self._is_omitted(i)):
            return False
        return self.computed_dimensions(at) == tuple(self._operands[i].dimensions for i in operation.outputs)

    def computed_dimensions(self, at: int) -> tuple[Dimensions, ...] | None:
        """Return the dimensions of an operation's outputs if the model alone tells them."""
        operation = self.operations[at]
        if operation.type in CONTROL_FLOW or not all(self._is_omitted(i) or self.is_known(i) for i in operation.inputs):
            return None
        try:
            op = self.view(at)
            if op.definition.data_dependent or any(op.inputs[i].value() is None for i in op.shape_inputs()):
                return None
            return output_dimensions(op)
        except BadData:
            return None  # lowering says what is wrong

    def has_table(self, at: int) -> bool:
        """Whether a DEQUANTIZE or MAXIMUM makes other codes of codes."""
        return at in self._tables

    def is_rewritten(self, at: int) -> bool:
        """Whether an operation does something else than its type and operands say."""
        return at in self._tables or at in self._from_end or at in self._sums

    # Changes

    def replace(self, at: int, operation: Operation, absorbed: Iterable[int] = ()) -> None:
        """Put another operation in a place; it computes what the `absorbed` ones did too, which are removed."""
        for other in absorbed:
            self._origins[at] += self._origins[other]
            self.remove(other)
        self._disconnect(at)
        self.operations[at] = operation
        self._connect(at, operation)

    def split(self, at: int, operations: Sequence[Operation]) -> None:
        """Put several operations in a place. Only the last is seen until there is a new graph of what is left."""
        *before, last = operations
        self.replace(at, last)
        self._before[at] = tuple(before)

    def give_table(self, at: int, table: Array) -> None:
        """Let a DEQUANTIZE or MAXIMUM make other codes of codes."""
        self._tables[at] = table

    def counts_from_end(self, at: int) -> bool:
        """Whether a GATHER or EMBEDDING_LOOKUP counts negative indices from the end."""
        return at in self._from_end

    def count_from_end(self, at: int) -> None:
        """Let a GATHER or EMBEDDING_LOOKUP count negative indices from the end."""
        self._from_end.add(at)

    def leave_undivided(self, at: int) -> None:
        """Let a MEAN make a sum."""
        self._sums.add(at)

    def remove(self, at: int) -> None:
        """Take an operation out."""
        self._disconnect(at)
        self._before.pop(at, None)
        del self.operations[at]

    def read_instead(self, operand: int, other: int) -> None:
        """Have every reader of an operand read another."""
        for at in self.readers(operand):
            operation = self.operations[at]
            inputs = tuple(other if i == operand else i for i in operation.inputs)
            self.replace(at, replace(operation, inputs=inputs))

    def write_instead(self, operand: int, other: int) -> None:
        """Have the maker of a temporary write another operand, and its readers read that."""
        at = self._producers[operand]
        operation = self.operations[at]
        outputs = tuple(other if i == operand else i for i in operation.outputs)
        self.replace(at, replace(operation, outputs=outputs))
        self.read_instead(operand, other)

    def add_temporary(self, like: int, dims: Dimensions) -> int:
        """Add a temporary with an operand's type and quantisation, and return it."""
        model = self._operands[like]
        self._operands.append(Operand(model.type, dims, model.scale, model.zero_point))
        return len(self._operands) - 1

    def add_constant(self, data: Array, like: int) -> int:
        """Add a constant with an operand's type and quantisation, and return it."""
        self._operands.append(constant_operand(self._operands[like], data))
        return len(self._operands) - 1

    def add_scalar(self, value: bool | int) -> int:
        """Add a constant BOOL or INT32, and return it."""
        kind = OperandCode.BOOL if isinstance(value, bool) else OperandCode.INT32
        self._operands.append(constant_operand(Operand(kind), np.array(value, dtype_of(kind))))
        return len(self._operands) - 1

    def add_numbers(self, values: Sequence[int] | Sequence[tuple[int, ...]]) -> int:
        """Add a constant tensor of int32, and return it."""
        data = np.array(values, np.int32)
        self._operands.append(constant_operand(Operand(OperandCode.TENSOR_INT32), data))
        return len(self._operands) - 1

    def make_constant(self, operand: int, data: Array) -> None:
        """Let an operand that nothing makes any more be a constant."""
        self._operands[operand] = constant_operand(self._operands[operand], data)
        self._constants.pop(operand, None)

    def _is_omitted(self, operand: int) -> bool:
        return self._operands[operand].lifetime == OperandLifeTime.NO_VALUE

    def _connect(self, at: int, operation: Operation) -> None:
        for operand in operation.inputs:
            self._readers.setdefault(operand, []).append(at)
        for operand in operation.outputs:
            self._producers[operand] = at

    def _disconnect(self, at: int) -> None:
        operation = self.operations[at]
        for operand in operation.inputs:
            self._readers[operand].remove(at)
        for operand in operation.outputs:
            del self._producers[operand]

    def _find_dimensions(self) -> None:
        """Give temporaries that the model declares without sizes those that its inputs tell."""
        for at, operation in self.operations.items():
            missing = [i for i in operation.outputs if self.is_temporary(i) and not self.is_known(i)]
            computed = self.computed_dimensions(at) if missing else None
            for operand, dims in zip(operation.outputs, computed or (), strict=False):
                self._give_dimensions(operand, dims)

    def _give_dimensions(self, operand: int, dims: Dimensions) -> None:
        declared = self._operands[operand].dimensions
        try:
            found = merge_dimensions(declared, dims)
        except BadData:
            return  # lowering says what is wrong
        if self.is_temporary(operand) and found == dims and 0 not in dims:
            self._operands[operand] = replace(self._operands[operand], dimensions=dims)


def constant_operand(operand: Operand, data: Array) -> Operand:
    """Return an operand like another that is a constant."""
    data = np.asarray(data, order="C")
    location = DataLocation(length=data.nbytes, pointer=data)
    return replace(operand, dimensions=data.shape, lifetime=OperandLifeTime.POINTER, location=location)
