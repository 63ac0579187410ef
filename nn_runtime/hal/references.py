# SPDX-License-Identifier: Apache-2.0
"""Which models the IFs and WHILEs of a model refer to, and what a driver refuses for their sake; each is met once.

Several may refer to one, at every depth of a nest: following each by itself takes twice as long a level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import CONTROL_FLOW, operation_name
from nn_runtime.hal.types import OperandLifeTime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.types import Model, Operation, Subgraph


def referenced_by(graph: Subgraph, operation: Operation) -> list[int]:
    """Return the numbers of the models that an operation of a graph refers to, in the order of its inputs."""
    if operation.type not in CONTROL_FLOW:
        return []
    operands = (graph.operands[i] for i in operation.inputs)
    return [operand.location.offset for operand in operands if operand.lifetime == OperandLifeTime.SUBGRAPH]


def innermost_first(main: Subgraph, referenced: Sequence[Subgraph]) -> list[int]:
    """Return the numbers of the models that `main` refers to, directly or not, each behind those that it refers to.

    However deep the nest is: nothing here calls itself.
    """
    order: list[int] = []
    met: set[int] = set()
    path = _models(main)
    while path:
        number = path[-1]
        inner = [one for one in _models(referenced[number]) if one not in met] if number not in met else []
        met.add(number)
        path += inner
        if not inner:
            order.append(path.pop())
    return list(dict.fromkeys(order))


def _models(graph: Subgraph) -> list[int]:
    return list(dict.fromkeys(number for one in graph.operations for number in referenced_by(graph, one)))


def refusals_of(model: Model, refusal: Callable[[Subgraph, Operation, int], str]) -> list[str]:
    """Return why a driver refuses each operation of the main subgraph, "" for those that it takes.

    refusal: says so of an operation of a graph by its place, for all but IF and WHILE. These are refused for the first
    operation that is refused in a model that they refer to.
    """
    inside: dict[int, str] = {}

    def reason(graph: Subgraph, operation: Operation, at: int) -> str:
        if operation.type in CONTROL_FLOW:
            return next((inside[number] for number in referenced_by(graph, operation) if inside[number]), "")
        return refusal(graph, operation, at)

    for number in innermost_first(model.main, model.referenced):
        graph = model.referenced[number]
        refused = (
            f"operation {at} {operation_name(operation.type)} of model {number}: {said}"
            for at, operation in enumerate(graph.operations)
            if (said := reason(graph, operation, at))
        )
        inside[number] = next(refused, "")
    return [reason(model.main, operation, at) for at, operation in enumerate(model.main.operations)]
