# SPDX-License-Identifier: Apache-2.0
"""ARGMAX: position of the largest element along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
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


define(
    Definition(
        OperationCode.ARGMAX,
        (Variant((Input("input", rank=ANY_RANK), Input("axis", INT32))),),
        (Output("output", INT32_TENSOR, rank=ANY_RANK),),
        {
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
        },
        _prepare,
    )
)
