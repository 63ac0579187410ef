# SPDX-License-Identifier: Apache-2.0
"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL: two broadcast inputs, one output of TENSOR_BOOL8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES, broadcast_dimensions
from nn_runtime.operations.signature import ANY_RANK, Definition, Input, OperationView, Output, Variant, define, only

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

COMPARISONS = (
    OperationCode.EQUAL,
    OperationCode.NOT_EQUAL,
    OperationCode.GREATER,
    OperationCode.GREATER_EQUAL,
    OperationCode.LESS,
    OperationCode.LESS_EQUAL,
)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (broadcast_dimensions(op, op.dimensions("input0"), op.dimensions("input1")),)


for _code in COMPARISONS:
    define(
        Definition(
            _code,
            (Variant((Input("input0", rank=ANY_RANK), Input("input1", rank=ANY_RANK))),),
            (Output("output", only(OperandCode.TENSOR_BOOL8), ANY_RANK),),
            {**HAL_1_2_TYPES, OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_2},
            _prepare,
        )
    )
