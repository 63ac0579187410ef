# SPDX-License-Identifier: Apache-2.0
"""Operations on real numbers between DEQUANTIZE and QUANTIZE that make of a byte another: 256 of them tell it all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import DataLocation, OperandLifeTime, Operation, Subgraph
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count, is_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operand
    from nn_runtime.operand import Array, Dimensions

CODES = 256
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
    """What a QUANTIZE gives is a function of the bytes of `source`, by these `operations`, the QUANTIZE among them."""

    at: int
    source: int
    operations: frozenset[int]


def islands(graph: Graph) -> list[Island]:
    """Return one for each QUANTIZE that has an island, in order."""
    found = (_island(graph, at) for at, one in graph.operations.items() if one.type == OperationCode.QUANTIZE)
    return [island for island in found if island is not None]


def of_all_codes(graph: Graph, found: Sequence[Island]) -> Subgraph:
    """Return a subgraph without inputs whose outputs are the islands' tables, [256] by the bits of a code."""
    subgraph = graph.rewritten().subgraph
    operands = list(subgraph.operands)
    for island in found:
        dims = (*[1] * (len(operands[island.source].dimensions) - 1), CODES)
        codes = np.arange(CODES, dtype=np.uint8).view(dtype_of(operands[island.source].type)).reshape(dims)
        for at in island.operations:
            for i in graph.operations[at].outputs:
                operands[i] = replace(operands[i], dimensions=dims)
        operands[island.source] = replace(
            operands[island.source],
            dimensions=dims,
            lifetime=OperandLifeTime.POINTER,
            location=DataLocation(length=CODES, pointer=codes),
        )
    made = tuple(_output(graph, island) for island in found)
    for i in made:
        operands[i] = replace(operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    used = frozenset[int]().union(*(island.operations for island in found))
    operations = tuple(operation for at, operation in graph.operations.items() if at in used)
    return Subgraph(tuple(operands), operations, (), made)


def look_up(graph: Graph, island: Island, table: Array) -> None:
    """Put a table in the place of an island, and take out those of its operations that nobody else needs."""
    gone = {island.at}
    for at in sorted(island.operations - gone, reverse=True):
        outputs = graph.operations[at].outputs
        if not any(graph.is_output(i) or not gone.issuperset(graph.readers(i)) for i in outputs):
            gone.add(at)
    operation = Operation(OperationCode.DEQUANTIZE, (island.source,), (_output(graph, island),))
    graph.replace(island.at, operation, sorted(gone - {island.at}))
    graph.give_table(island.at, table.reshape(CODES))


def _output(graph: Graph, island: Island) -> int:
    (output,) = graph.operations[island.at].outputs
    return output


def _island(graph: Graph, at: int) -> Island | None:
    operation = graph.operations[at]
    if graph.operand(operation.outputs[0]).type not in QUANT8_TYPES:
        return None
    inside = {at}
    sources: set[int] = set()
    waiting = [operation.inputs[0]]
    while waiting:
        maker = graph.producer(waiting.pop())
        if maker is None:
            return None
        if maker in inside:
            continue
        inside.add(maker)
        operation = graph.operations[maker]
        if operation.type == OperationCode.DEQUANTIZE:
            sources.add(operation.inputs[0])
        elif operation.type in _ELEMENTWISE:
            waiting += [i for i in operation.inputs if not graph.is_constant(i)]
        else:
            return None
    (source,) = sources if len(sources) == 1 else (None,)
    if source is None or graph.operand(source).type not in QUANT8_TYPES or graph.is_constant(source):
        return None
    dims = graph.operand(source).dimensions
    operands = [
        (i, graph.operand(i)) for one in inside for i in (*graph.operations[one].inputs, *graph.operations[one].outputs)
    ]
    fits = all(
        _is_number(operand, dims) if graph.is_constant(i) else operand.dimensions == dims for i, operand in operands
    )
    return Island(at, source, frozenset(inside)) if fits else None


def _is_number(operand: Operand, dims: Dimensions) -> bool:
    """Whether a constant is the same for all elements of a tensor."""
    is_small = element_count(operand.dimensions) == 1 and len(operand.dimensions) <= max(1, len(dims))
    return not is_tensor(operand.type) or is_small
