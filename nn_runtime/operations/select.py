# SPDX-License-Identifier: Apache-2.0
"""SELECT: elements of one of two inputs, by a condition of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES
from nn_runtime.operations.signature import ANY_RANK, Definition, Input, OperationView, Output, Variant, define, only

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("condition")
    for name in ("input_true", "input_false"):
        if op.dimensions(name) != dims:
            op.fail(name, f"must have the condition's dimensions {list(dims)}", list(op.dimensions(name)))
    return (dims,)


define(
    Definition(
        OperationCode.SELECT,
        (
            Variant(
                (
                    Input("condition", only(OperandCode.TENSOR_BOOL8), ANY_RANK),
                    Input("input_true", rank=ANY_RANK),
                    Input("input_false", rank=ANY_RANK),
                )
            ),
        ),
        (Output("output", rank=ANY_RANK),),
        HAL_1_2_TYPES,
        _prepare,
        data_input=1,
    )
)
