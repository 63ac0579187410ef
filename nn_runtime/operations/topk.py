# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2: the greatest elements along the last axis, and where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES, check_same_quantization
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


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims, k = op.dimensions("input"), op.int_value("k")
    if not 1 <= k <= dims[-1]:
        op.fail("k", f"must be in 1..{dims[-1]}", k)
    return ((*dims[:-1], k),) * 2


define(
    Definition(
        OperationCode.TOPK_V2,
        (Variant((Input("input", rank=ANY_RANK), Input("k", INT32))),),
        (Output("values", rank=ANY_RANK), Output("indices", INT32_TENSOR, ANY_RANK)),
        HAL_1_2_TYPES,
        _prepare,
        _check,
    )
)
