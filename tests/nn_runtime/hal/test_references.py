# SPDX-License-Identifier: Apache-2.0
"""Models that others refer to: each is met once, however often and deep it is referred to."""

from __future__ import annotations

from collections import Counter

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.hal.references import innermost_first, referenced_by, refusals_of
from nn_runtime.hal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph

IF, WHILE, RELU = OperationCode.IF, OperationCode.WHILE, OperationCode.RELU
DEPTH = 40


def refers(*numbers: int, code: int = IF) -> Subgraph:
    """A graph of one operation that refers to models."""
    operands = tuple(
        Operand(OperandCode.MODEL, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(offset=number))
        for number in numbers
    )
    return Subgraph(operands, (Operation(code, tuple(range(len(numbers))), ()),), (), ())


LEAF = Subgraph((Operand(OperandCode.TENSOR_FLOAT32, (1,)),), (Operation(RELU, (0,), (0,)),), (0,), (0,))


def nest(depth: int) -> Model:
    """Both branches of each IF are the next one: 2^depth ways to the model inside."""
    return Model(refers(0, 0), (*(refers(at + 1, at + 1) for at in range(depth)), LEAF))


def test_a_model_comes_behind_those_that_it_refers_to() -> None:
    graphs = [refers(2, 1), refers(3, 2), refers(3, 3, code=WHILE), LEAF]
    assert innermost_first(refers(0, 1), graphs) == [3, 2, 1, 0]
    assert innermost_first(refers(1, 0), graphs) == [3, 2, 1, 0]
    assert innermost_first(refers(2, 3), graphs) == [3, 2]
    assert innermost_first(LEAF, graphs) == []


def test_only_control_flow_refers_to_models() -> None:
    graph = refers(4, 7, 4, code=WHILE)
    assert referenced_by(graph, graph.operations[0]) == [4, 7, 4]
    other = refers(4, code=RELU)
    assert referenced_by(other, other.operations[0]) == []


def test_no_nest_is_too_deep() -> None:
    assert innermost_first(nest(5000).main, nest(5000).referenced) == list(range(5000, -1, -1))


def test_each_operation_is_asked_for_once() -> None:
    asked: Counter[tuple[int, int]] = Counter()
    model = nest(DEPTH)

    def refusal(graph: Subgraph, operation: Operation, at: int) -> str:
        asked[model.referenced.index(graph), at] += 1
        return "too small" if operation.type == RELU else ""

    (reason,) = refusals_of(model, refusal)
    assert reason.startswith("operation 0 IF of model 0: operation 0 IF of model 1: ")
    assert reason.endswith(f": operation 0 RELU of model {DEPTH}: too small")
    assert asked == {(DEPTH, 0): 1}
    assert refusals_of(model, lambda *_: "") == [""]


def test_a_refusal_is_that_of_the_first_operation_inside() -> None:
    inner = Subgraph(
        LEAF.operands, (Operation(RELU, (0,), (0,)), Operation(OperationCode.TANH, (0,), (0,))), (0,), (0,)
    )
    model = Model(refers(1, 0), (inner, LEAF))
    by_code = {int(RELU): "", int(OperationCode.TANH): "no hyperbolas"}
    (reason,) = refusals_of(model, lambda _graph, operation, _at: by_code[operation.type])
    assert reason == "operation 1 TANH of model 0: no hyperbolas"
