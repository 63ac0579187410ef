# SPDX-License-Identifier: Apache-2.0
"""Operations that another one before them does already: indices and masks that every layer of a network makes anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import CONTROL_FLOW, OperationCode

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gpu_driver.passes.graph import Graph

_NEVER_ALIKE = (*CONTROL_FLOW, OperationCode.RANDOM_MULTINOMIAL)
_COMPARED_BYTES = 1 << 12
"""Of a constant: larger ones are alike where they are the same operand."""


def remove_repetitions(graph: Graph) -> bool:
    """Let readers of what is made a second time read what was made first; whether there was any."""
    removed = False
    first: dict[Hashable, int] = {}
    for at in list(graph.operations):
        operation = graph.operations[at]
        if operation.type in _NEVER_ALIKE or graph.is_rewritten(at):
            continue
        inputs = tuple(_value(graph, i) for i in operation.inputs)
        made = tuple(_kind(graph, i) for i in operation.outputs)
        other = first.setdefault((operation.type, inputs, made), at)
        if other == at or any(graph.is_output(i) for i in operation.outputs):
            continue
        graph.replace(other, graph.operations[other], (at,))
        for again, before in zip(operation.outputs, graph.operations[other].outputs, strict=True):
            graph.read_instead(again, before)
        removed = True
    return removed


def _value(graph: Graph, index: int) -> Hashable:
    """Return what is the same for operands that have the same value, whatever a run brings."""
    data = graph.constant(index) if graph.is_constant(index) else None
    if data is None or data.nbytes > _COMPARED_BYTES:
        return index
    return _kind(graph, index), data.tobytes()


def _kind(graph: Graph, index: int) -> Hashable:
    operand = graph.operand(index)
    return operand.type, operand.dimensions, operand.scale, operand.zero_point, operand.channel_quant
