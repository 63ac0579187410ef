# SPDX-License-Identifier: Apache-2.0
"""Operations on real numbers between DEQUANTIZE and QUANTIZE that make a byte of one or two: a table tells it all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import DataLocation, OperandLifeTime, Operation, Subgraph
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count, is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Array, Dimensions

CODES = 256
_MOST_SOURCES = 2
_ELEMENTWISE = frozenset(
    {
        OperationCode.ABS,
        OperationCode.ADD,
        OperationCode.DIV,
        OperationCode.ELU,
        OperationCode.EXP,
        OperationCode.FLOOR,
        OperationCode.HARD_SWISH,
        OperationCode.LOG,
        OperationCode.LOGISTIC,
        OperationCode.MAXIMUM,
        OperationCode.MINIMUM,
        OperationCode.MUL,
        OperationCode.NEG,
        OperationCode.POW,
        OperationCode.PRELU,
        OperationCode.RELU,
        OperationCode.RELU1,
        OperationCode.RELU6,
        OperationCode.RSQRT,
        OperationCode.SIN,
        OperationCode.SQRT,
        OperationCode.SUB,
        OperationCode.TANH,
    }
)


@dataclass(frozen=True)
class Island:
    """What a QUANTIZE, operation `at`, gives is a function of the bytes of one or two `sources`.

    `operations`: those that compute it, the QUANTIZE among them. `tensors`: what they make, with the sources of each.
    """

    at: int
    sources: tuple[int, ...]
    operations: frozenset[int]
    tensors: Mapping[int, frozenset[int]]


def islands(graph: Graph) -> list[Island]:
    """Return one for each QUANTIZE that has an island, in order."""
    found = (_Search(graph).island(at) for at, one in graph.operations.items() if one.type == OperationCode.QUANTIZE)
    return [island for island in found if island is not None]


def apart(found: Sequence[Island]) -> list[list[Island]]:
    """Return islands in groups that share no tensor, nor is a source of one made by another."""
    groups: list[tuple[set[int], list[Island]]] = []
    for island in found:
        own = {*island.sources, *island.tensors}
        used, group = next((one for one in groups if one[0].isdisjoint(own)), (set[int](), list[Island]()))
        if not group:
            groups.append((used, group))
        used |= own
        group.append(island)
    return [group for _, group in groups]


def of_all_codes(graph: Graph, group: Sequence[Island]) -> Subgraph:
    """Return a subgraph without inputs whose outputs are tables: each source has an axis of all its codes.

    group: of islands that are `apart`.
    """
    operands = list(graph.rewritten().subgraph.operands)
    for island in group:
        _take_all_codes(operands, island)
    made = tuple(_output(graph, island) for island in group)
    for i in made:
        operands[i] = replace(operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    used = frozenset[int]().union(*(island.operations for island in group))
    operations = tuple(operation for at, operation in graph.operations.items() if at in used)
    return Subgraph(tuple(operands), operations, (), made)


def _take_all_codes(operands: list[Operand], island: Island) -> None:
    rank = max(len(island.sources), *(len(operands[i].dimensions) for i in island.tensors))
    axes = {source: rank - len(island.sources) + at for at, source in enumerate(island.sources)}

    def dims(sources: Iterable[int]) -> Dimensions:
        own = {axes[source] for source in sources}
        return tuple(CODES if axis in own else 1 for axis in range(rank))

    for i, sources in island.tensors.items():
        operands[i] = replace(operands[i], dimensions=dims(sources))
    for source in island.sources:
        every = np.arange(CODES, dtype=np.uint8).view(dtype_of(operands[source].type)).reshape(dims([source]))
        location = DataLocation(length=CODES, pointer=every)
        constant = replace(operands[source], lifetime=OperandLifeTime.POINTER, location=location)
        operands[source] = replace(constant, dimensions=every.shape)


def look_up(graph: Graph, island: Island, table: Array) -> None:
    """Put a table in the place of an island, and take out those of its operations that nobody else needs."""
    gone = {island.at}
    for at in sorted(island.operations - gone, reverse=True):
        outputs = graph.operations[at].outputs
        if not any(graph.is_output(i) or not gone.issuperset(graph.readers(i)) for i in outputs):
            gone.add(at)
    code = OperationCode.DEQUANTIZE if len(island.sources) == 1 else OperationCode.MAXIMUM
    operation = Operation(code, island.sources, (_output(graph, island),))
    graph.replace(island.at, operation, sorted(gone - {island.at}))
    graph.give_table(island.at, table.reshape([CODES] * len(island.sources)))


def _output(graph: Graph, island: Island) -> int:
    (output,) = graph.operations[island.at].outputs
    return output


class _Search:
    """Goes back from a QUANTIZE to the sources of what it reads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._operations: set[int] = set()
        self._tensors: dict[int, frozenset[int]] = {}

    def island(self, at: int) -> Island | None:
        graph = self._graph
        operation = graph.operations[at]
        (output,) = operation.outputs
        sources = self._sources(operation.inputs[0])
        if not sources or len(sources) > _MOST_SOURCES:
            return None
        self._operations.add(at)
        self._tensors[output] = sources
        found = tuple(sorted(sources))
        types = {graph.operand(i).type for i in (*found, output)}
        if not types <= QUANT8_TYPES or (len(found) > 1 and len(types) > 1):
            return None
        dims = {source: graph.operand(source).dimensions for source in found}
        if not all(self._fits(i, dims) for i in self._tensors) or not all(map(self._takes_numbers, self._operations)):
            return None
        return Island(at, found, frozenset(self._operations), self._tensors)

    def _sources(self, operand: int) -> frozenset[int]:
        """Return the 8-bit tensors that a real one is a function of, element by element; none if it is no such."""
        graph = self._graph
        if operand in self._tensors:
            return self._tensors[operand]
        maker = graph.producer(operand)
        if maker is None:
            return frozenset()
        operation = graph.operations[maker]
        if operation.type == OperationCode.DEQUANTIZE:
            found = frozenset(i for i in operation.inputs if not graph.is_constant(i))
        elif operation.type in _ELEMENTWISE:
            parts = [self._sources(i) for i in operation.inputs if not graph.is_constant(i)]
            found = frozenset[int]().union(*parts) if all(parts) else frozenset()
        else:
            found = frozenset()
        self._operations.add(maker)
        self._tensors[operand] = found
        return found

    def _fits(self, operand: int, dims: Mapping[int, Dimensions]) -> bool:
        """Whether a tensor has the dimensions of its sources, put together; of one source alone they may be unknown."""
        own = [dims[source] for source in self._tensors[operand]]
        found = self._graph.operand(operand).dimensions
        if len(own) == 1:
            return found == own[0]
        known = all(own) and not any(0 in one for one in own)
        return known and found == np.broadcast_shapes(*own)

    def _takes_numbers(self, at: int) -> bool:
        """Whether the constants of an operation are the same for all elements."""
        graph, operation = self._graph, self._graph.operations[at]
        rank = max(1, *(len(graph.operand(i).dimensions) for i in operation.outputs))
        constants = [graph.operand(i) for i in operation.inputs if graph.is_constant(i)]
        return all(
            not is_tensor(one.type) or (element_count(one.dimensions) == 1 and len(one.dimensions) <= rank)
            for one in constants
        )
