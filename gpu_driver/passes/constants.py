# SPDX-License-Identifier: Apache-2.0
"""Which operations are computed once at preparation: those of constants alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import OperandLifeTime, Subgraph
from nn_runtime.operand import size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.passes.graph import Graph

GREATEST_GROWTH = 4
"""Of bytes: what DEQUANTIZE of 8-bit weights needs."""
ALWAYS_BYTES = 64 << 10
"""A result of at most that size may come from however little: FILL, TILE, or RANK of a constant."""
_DRAWS = frozenset({OperationCode.RANDOM_MULTINOMIAL})


def foldable(graph: Graph) -> list[int]:
    """Return the operations, in order, that work on constants alone and whose results are worth keeping.

    Left alone are control flow, random numbers, what writes an output of the model, and results that take much more
    memory than the constants they are made of: they would stay on the device, where temporaries share theirs.
    """
    found: list[int] = []
    origins: dict[int, frozenset[int]] = {}
    for at, operation in graph.operations.items():
        sources = _sources(graph, at, origins)
        if sources is None or not graph.fits(at):
            continue
        limit = max(ALWAYS_BYTES, GREATEST_GROWTH * sum(_bytes(graph, i) for i in sources))
        if all(_bytes(graph, i) <= limit for i in operation.outputs):
            found.append(at)
            origins.update(dict.fromkeys(operation.outputs, sources))
    return found


def constant_part(graph: Graph, folded: Sequence[int]) -> Subgraph:
    """Return a subgraph without inputs that computes what other operations read of the folded ones."""
    mine = set(folded)
    made = [i for at in folded for i in graph.operations[at].outputs if not mine.issuperset(graph.readers(i))]
    operations = tuple(graph.operations[at] for at in folded)
    subgraph = graph.rewritten().subgraph
    operands = list(subgraph.operands)
    for i in made:
        operands[i] = replace(operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    return Subgraph(tuple(operands), operations, (), tuple(made))


def _sources(graph: Graph, at: int, origins: dict[int, frozenset[int]]) -> frozenset[int] | None:
    """Return the constants that an operation's results come from, None where they come from others too."""
    operation = graph.operations[at]
    if operation.type in _DRAWS or any(graph.is_output(i) for i in operation.outputs):
        return None
    found: set[int] = set()
    for i in operation.inputs:
        if i in origins:
            found |= origins[i]
        elif graph.is_constant(i):
            found.add(i)
        elif graph.operand(i).lifetime != OperandLifeTime.NO_VALUE:
            return None
    return frozenset(found)


def _bytes(graph: Graph, operand: int) -> int:
    found = graph.operand(operand)
    return size_bytes(found.type, found.dimensions)
