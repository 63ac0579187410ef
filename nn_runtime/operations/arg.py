# SPDX-License-Identifier: Apache-2.0
"""ARGMAX and ARGMIN: position of the largest or smallest element along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    axis = op.axis("axis", len(dims))
    if dims[axis] == 0:
        op.fail("input", f"must not be empty along axis {axis}", list(dims))
    return (dims[:axis] + dims[axis + 1 :] or (1,),)


for _code in (OperationCode.ARGMAX, OperationCode.ARGMIN):
    define(
        Definition(
            _code,
            (Variant((Input("input", rank=ANY_RANK), Input("axis", INT32))),),
            (Output("output", INT32_TENSOR, rank=ANY_RANK),),
            HAL_1_2_TYPES,
            _prepare,
        )
    )
