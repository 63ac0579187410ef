# SPDX-License-Identifier: Apache-2.0
"""Cases of IF and WHILE: one branch or the other, loops of no, one and several rounds, and one within another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import dtype_of
from nn_runtime.testing.corpus import ExampleGraph, ExampleOperand, ExampleOperation, Kind
from tests.operations.cases import BOOL8, FLOAT32, INT32, Argument, Case, of

if TYPE_CHECKING:
    from collections.abc import Sequence


def _operand(name: str, code: OperandCode, lifetime: OperandLifeTime, constant: float | None = None) -> ExampleOperand:
    dims = () if code == OperandCode.INT32 else (1,)
    value = None if constant is None else np.full(dims, constant, dtype_of(code))
    return ExampleOperand(name, code, dims, 0.0, 0, lifetime, value, None)


def _binary(operation: OperationCode, constant: float) -> ExampleGraph:
    """Return a model of one input: x (operation) constant."""
    operands = (
        _operand("x", FLOAT32, OperandLifeTime.SUBGRAPH_INPUT),
        _operand("constant", FLOAT32, OperandLifeTime.CONSTANT_COPY, constant),
        _operand("activation", OperandCode.INT32, OperandLifeTime.CONSTANT_COPY, FuseCode.NONE),
        _operand("result", FLOAT32, OperandLifeTime.SUBGRAPH_OUTPUT),
    )
    return ExampleGraph(operands, (ExampleOperation(operation, (0, 1, 2), (3,)),), (0,), (3,))


_CONDITION = ExampleGraph(
    (
        _operand("go_on", BOOL8, OperandLifeTime.SUBGRAPH_INPUT),
        _operand("x", FLOAT32, OperandLifeTime.SUBGRAPH_INPUT),
        _operand("result", BOOL8, OperandLifeTime.SUBGRAPH_OUTPUT),
    ),
    (ExampleOperation(OperationCode.CAST, (0,), (2,)),),
    (0, 1),
    (2,),
)

_BODY = ExampleGraph(
    (
        _operand("go_on", BOOL8, OperandLifeTime.SUBGRAPH_INPUT),
        _operand("x", FLOAT32, OperandLifeTime.SUBGRAPH_INPUT),
        _operand("no", BOOL8, OperandLifeTime.CONSTANT_COPY, False),
        _operand("activation", OperandCode.INT32, OperandLifeTime.CONSTANT_COPY, FuseCode.NONE),
        _operand("go_on_next", BOOL8, OperandLifeTime.SUBGRAPH_OUTPUT),
        _operand("x_next", FLOAT32, OperandLifeTime.SUBGRAPH_OUTPUT),
    ),
    (ExampleOperation(OperationCode.CAST, (2,), (4,)), ExampleOperation(OperationCode.ADD, (1, 1, 3), (5,))),
    (0, 1),
    (4, 5),
)


def _graph(
    inputs: int,
    constants: Sequence[ExampleOperand],
    operations: Sequence[tuple[OperationCode, tuple[int, ...]]],
    results: Sequence[ExampleOperand],
    outputs: tuple[int, ...],
) -> ExampleGraph:
    """Return a model of whole numbers: inputs, constants, then the result of each operation."""
    given = [_operand(f"input{i}", INT32, OperandLifeTime.SUBGRAPH_INPUT) for i in range(inputs)]
    first = inputs + len(constants)
    steps = tuple(ExampleOperation(code, used, (first + i,)) for i, (code, used) in enumerate(operations))
    return ExampleGraph((*given, *constants, *results), steps, tuple(range(inputs)), outputs)


def _whole(value: int) -> ExampleOperand:
    return _operand(f"constant{value}", INT32, OperandLifeTime.CONSTANT_COPY, value)


def _referenced(index: int) -> ExampleOperand:
    return ExampleOperand(f"model{index}", OperandCode.MODEL, (), 0.0, 0, OperandLifeTime.SUBGRAPH, index, None)


_NO_ACTIVATION = _operand("activation", OperandCode.INT32, OperandLifeTime.CONSTANT_COPY, FuseCode.NONE)
_TEMPORARY, _OUTPUT = OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT

# Inputs i, total, limit.
_BELOW_LIMIT = _graph(3, (), [(OperationCode.LESS, (0, 2))], (_operand("less", BOOL8, _OUTPUT),), (3,))

# Inputs i, total, limit; outputs i + 1, total + i.
_ADD_UP = _graph(
    3,
    (_whole(1), _NO_ACTIVATION),
    [(OperationCode.ADD, (0, 3, 4)), (OperationCode.ADD, (1, 0, 4))],
    (_operand("i_next", INT32, _OUTPUT), _operand("total_next", INT32, _OUTPUT)),
    (5, 6),
)

# Inputs i, total, limit; outputs i + 1, total doubled while i < 2, later total + i.
_DOUBLE = _graph(2, (_NO_ACTIVATION,), [(OperationCode.ADD, (1, 1, 2))], (_operand("twice", INT32, _OUTPUT),), (3,))
_PLUS = _graph(2, (_NO_ACTIVATION,), [(OperationCode.ADD, (1, 0, 2))], (_operand("sum", INT32, _OUTPUT),), (3,))
_CHOOSE = _graph(
    3,
    (_whole(1), _whole(2), _NO_ACTIVATION, _referenced(2), _referenced(3)),
    [(OperationCode.ADD, (0, 3, 5)), (OperationCode.LESS, (0, 4)), (OperationCode.IF, (9, 6, 7, 0, 1))],
    (_operand("i_next", INT32, _OUTPUT), _operand("less", BOOL8, _TEMPORARY), _operand("total_next", INT32, _OUTPUT)),
    (8, 10),
)

# Inputs i, total, limit; outputs i + 1, total + 0 + 1 + ... + (i - 1), by an inner loop to i.
_SUM_OF_SUMS = ExampleGraph(
    (
        *(_operand(name, INT32, OperandLifeTime.SUBGRAPH_INPUT) for name in ("i", "total", "limit")),
        _whole(1),
        _whole(0),
        _NO_ACTIVATION,
        _referenced(0),
        _referenced(2),
        _operand("i_next", INT32, _OUTPUT),
        _operand("inner_i", INT32, _TEMPORARY),
        _operand("total_next", INT32, _OUTPUT),
    ),
    (
        ExampleOperation(OperationCode.ADD, (0, 3, 5), (8,)),
        ExampleOperation(OperationCode.WHILE, (6, 7, 4, 1, 0), (9, 10)),
    ),
    (0, 1, 2),
    (8, 10),
)


def _model(index: int) -> Argument:
    return Argument((), [index], OperandCode.MODEL)


def _number(value: float) -> Argument:
    return of(FLOAT32, (1,), [value])


def _integer(value: int) -> Argument:
    return of(INT32, (1,), [value])


def _flag(value: bool) -> Argument:
    return of(BOOL8, (1,), [value])


_KINDS = (Kind.PLAIN, Kind.DEVICE_MEMORY)

_BRANCHES = (_binary(OperationCode.ADD, 10), _binary(OperationCode.MUL, 10))

CASES = (
    Case(
        OperationCode.IF,
        "then",
        (_flag(True), _model(0), _model(1), _number(3)),
        (_number(13),),
        (FLOAT32,),
        _KINDS,
        referenced=_BRANCHES,
    ),
    Case(
        OperationCode.IF,
        "else",
        (_flag(False), _model(0), _model(1), _number(3)),
        (_number(30),),
        (FLOAT32,),
        _KINDS,
        referenced=_BRANCHES,
    ),
    Case(
        OperationCode.WHILE,
        "never",
        (_model(0), _model(1), _flag(False), _number(3)),
        (_flag(False), _number(3)),
        (FLOAT32,),
        _KINDS,
        referenced=(_CONDITION, _BODY),
    ),
    Case(
        OperationCode.WHILE,
        "once",
        (_model(0), _model(1), _flag(True), _number(3)),
        (_flag(False), _number(6)),
        (FLOAT32,),
        _KINDS,
        referenced=(_CONDITION, _BODY),
    ),
    *(
        Case(
            OperationCode.WHILE,
            name,
            (_model(0), _model(1), _integer(0), _integer(start), _integer(limit)),
            tuple(map(_integer, results)),
            (INT32,),
            _KINDS,
            referenced=referenced,
        )
        for name, start, limit, results, referenced in (
            ("add_up", 100, 5, (5, 110), (_BELOW_LIMIT, _ADD_UP)),
            ("state_is_no_output", 100, 5, (5,), (_BELOW_LIMIT, _ADD_UP)),
            ("not_at_all", 7, 0, (0, 7), (_BELOW_LIMIT, _ADD_UP)),
            # 3, 6, 12, 12 + 2, 14 + 3.
            ("if_within", 3, 4, (4, 17), (_BELOW_LIMIT, _CHOOSE, _DOUBLE, _PLUS)),
            # 0 + 0 + 1 + (1 + 2) + (1 + 2 + 3).
            ("while_within", 0, 5, (5, 10), (_BELOW_LIMIT, _SUM_OF_SUMS, _ADD_UP)),
        )
    ),
)
