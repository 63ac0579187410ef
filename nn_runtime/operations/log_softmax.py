# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    float_scalar,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    op.axis("axis", len(dims))
    return (dims,)


define(
    Definition(
        OperationCode.LOG_SOFTMAX,
        (Variant((Input("input", rank=ANY_RANK), Input("beta", float_scalar), Input("axis", INT32))),),
        (Output("output", rank=ANY_RANK),),
        {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2},
        _prepare,
    )
)
