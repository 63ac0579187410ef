# SPDX-License-Identifier: Apache-2.0
"""What lookups in a table take over from the operations beside them, as networks of words have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph

_PLACES = {OperationCode.GATHER: (0, 2), OperationCode.EMBEDDING_LOOKUP: (1, 0)}
"""Of the table and of the indices."""


def extend_lookups(graph: Graph) -> None:
    """Let lookups do what the DEQUANTIZE behind them does, and count negative indices from the end."""
    for at in list(graph.operations):
        if at in graph.operations and graph.operations[at].type in _PLACES:
            _take_dequantize(graph, at)
            _take_negative_indices(graph, at)


def _take_dequantize(graph: Graph, at: int) -> None:
    """Let a lookup in a table of 8 bits make real numbers of what it finds."""
    operation = graph.operations[at]
    following = graph.sole_reader(operation.outputs[0])
    if following is None or graph.operations[following].type != OperationCode.DEQUANTIZE:
        return
    outputs = graph.operations[following].outputs
    types = [graph.operand(i).type for i in (operation.outputs[0], outputs[0])]
    if types[0] in QUANT8_TYPES and types[1] == OperandCode.TENSOR_FLOAT32:
        graph.replace(at, replace(operation, outputs=outputs), (following,))


def _take_negative_indices(graph: Graph, at: int) -> None:
    """Let a lookup count from the end instead of SELECT(indices < 0, indices + size, indices), as Keras writes it."""
    if graph.counts_from_end(at):  # once: twice would not be the same for what is less than -size
        return
    operation = graph.operations[at]
    table, place = _PLACES[OperationCode(operation.type)]
    select = graph.producer(operation.inputs[place])
    if select is None or graph.operations[select].type != OperationCode.SELECT or not graph.fits(at):
        return
    chosen, added, indices = graph.operations[select].inputs
    less, add = graph.producer(chosen), graph.producer(added)
    size = graph.operand(operation.inputs[table]).dimensions[_axis(graph, at)]
    if (
        (less is None or graph.operations[less].type != OperationCode.LESS)
        or (add is None or graph.operations[add].type != OperationCode.ADD)
        or not (graph.fits(select) and graph.sole_reader(operation.inputs[place]) == at)
        or _number_beside(graph, less, indices) != 0
        or graph.operations[less].inputs[0] != indices
        or _number_beside(graph, add, indices) != size
    ):
        return
    inputs = [*operation.inputs]
    inputs[place] = indices
    alone = [one for one, result in ((less, chosen), (add, added)) if graph.sole_reader(result) == select]
    graph.replace(at, replace(operation, inputs=tuple(inputs)), (select, *alone))
    graph.count_from_end(at)


def _axis(graph: Graph, at: int) -> int:
    """Return the axis of the table that a lookup's indices count."""
    op = graph.view(at)
    return op.axis("axis", len(op.dimensions("input"))) if op.code == OperationCode.GATHER else 0


def _number_beside(graph: Graph, at: int, operand: int) -> int | None:
    """Return the number that an operation of two tensors of integers has beside an operand."""
    numbers = graph.constant_beside(at, operand)
    return int(numbers.reshape(-1)[0]) if numbers is not None and numbers.size == 1 else None
