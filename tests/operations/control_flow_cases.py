# SPDX-License-Identifier: Apache-2.0
"""Cases of IF and WHILE over models of one operation."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.types import OperandLifeTime
from nn_runtime.operand import dtype_of
from nn_runtime.testing.corpus import ExampleGraph, ExampleOperand, ExampleOperation, Kind
from tests.operations.cases import BOOL8, FLOAT32, Argument, Case, of


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


def _model(index: int) -> Argument:
    return Argument((), [index], OperandCode.MODEL)


def _number(value: float) -> Argument:
    return of(FLOAT32, (1,), [value])


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
)
