# SPDX-License-Identifier: Apache-2.0
"""Operations on real numbers between DEQUANTIZE and QUANTIZE that make a byte of one or two: a table tells it all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import DataLocation, OperandLifeTime, Operation, Subgraph
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count, is_tensor
from nn_runtime.quantization import dequantize, quantize
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Array, Dimensions

CODES = 256
_MOST_SOURCES = 2
_REQUANTISING = 2
"""Operations: DEQUANTIZE and QUANTIZE."""
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
    sources = _sources(graph)
    found = (_island(graph, at, sources) for at, one in graph.operations.items() if one.type == OperationCode.QUANTIZE)
    return [island for island in found if island is not None]


def apart(found: Sequence[Island]) -> list[list[Island]]:
    """Return islands in groups that can be computed at once: they have the same sources, or share no tensor."""
    alike: dict[tuple[int, ...], list[Island]] = {}
    for island in found:
        alike.setdefault(island.sources, []).append(island)
    groups: list[tuple[set[int], list[Island]]] = []
    for sources, some in alike.items():
        own = {*sources, *(i for island in some for i in island.tensors)}
        used, group = next((one for one in groups if one[0].isdisjoint(own)), (set[int](), list[Island]()))
        if not group:
            groups.append((used, group))
        used |= own
        group += some
    return [group for _, group in groups]


def of_requantisation(graph: Graph, island: Island) -> Array | None:
    """Return the table of a QUANTIZE right behind a DEQUANTIZE; None for others, which are the device's to compute."""
    if len(island.operations) > _REQUANTISING:
        return None
    (maker,) = island.operations - {island.at}
    source, real, output = graph.view(maker).inputs[0], graph.view(maker).outputs[0], graph.view(island.at).outputs[0]
    codes = np.arange(CODES, dtype=np.uint8).view(dtype_of(source.type))
    return quantize(dequantize(codes, source).astype(dtype_of(real.type)), output)


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


def _sources(graph: Graph) -> dict[int, frozenset[int]]:
    """Return the 8-bit tensors of which real ones are functions, element by element, where these are few."""
    found: dict[int, frozenset[int]] = {}
    for at, operation in graph.operations.items():
        if operation.type == OperationCode.DEQUANTIZE:
            sources = frozenset(i for i in operation.inputs if graph.operand(i).type in QUANT8_TYPES)
            if any(graph.is_constant(i) for i in sources):
                continue
        elif operation.type in _ELEMENTWISE:
            inputs = [i for i in operation.inputs if not graph.is_constant(i)]
            if not all(i in found for i in inputs):
                continue
            sources = frozenset[int]().union(*(found[i] for i in inputs))
        else:
            continue
        if 0 < len(sources) <= _MOST_SOURCES and _fits(graph, at, sources) and _takes_numbers(graph, at):
            found.update(dict.fromkeys(operation.outputs, sources))
    return found


def _island(graph: Graph, at: int, sources: Mapping[int, frozenset[int]]) -> Island | None:
    operation = graph.operations[at]
    own = sources.get(operation.inputs[0], frozenset())
    (output,) = operation.outputs
    types = {graph.operand(i).type for i in (*own, output)}
    if not own or (len(own) > 1 and len(types) > 1) or not _fits(graph, at, own):
        return None
    operations = {at}
    tensors = {output: own}
    waiting = [operation.inputs[0]]
    while waiting:
        operand = waiting.pop()
        maker = graph.producer(operand)
        if operand in tensors or operand not in sources or maker is None:
            continue
        tensors[operand] = sources[operand]
        operations.add(maker)
        waiting += graph.operations[maker].inputs
    return Island(at, tuple(sorted(own)), frozenset(operations), tensors)


def _fits(graph: Graph, at: int, sources: Collection[int]) -> bool:
    """Whether a result has the dimensions of its sources, put together; of one source alone they may be unknown."""
    dims = [graph.operand(source).dimensions for source in sources]
    (output,) = graph.operations[at].outputs
    found = graph.operand(output).dimensions
    if len(dims) == 1:
        return found == dims[0]
    return all(dims) and not any(0 in one for one in dims) and found == np.broadcast_shapes(*dims)


def _takes_numbers(graph: Graph, at: int) -> bool:
    """Whether the constants of an operation are the same for all elements."""
    operation = graph.operations[at]
    rank = max(1, *(len(graph.operand(i).dimensions) for i in operation.outputs))
    constants = [graph.operand(i) for i in operation.inputs if graph.is_constant(i)]
    return all(
        not is_tensor(one.type) or (element_count(one.dimensions) == 1 and len(one.dimensions) <= rank)
        for one in constants
    )
