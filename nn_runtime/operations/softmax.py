# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_fixed_quantization
from nn_runtime.operations.signature import (
    INT32,
    UP_TO_4,
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


def _check(op: OperationView) -> FeatureLevel:
    check_fixed_quantization(op, scale=1 / 256, zero_point=0)
    dims = op.input("input").dimensions
    return FeatureLevel.HAL_1_0 if dims and len(dims) in (2, 4) else FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    op.axis("axis", len(dims), default=-1)
    if not op.float_value("beta") > 0:
        op.fail("beta", "must be > 0", op.float_value("beta"))
    return (dims,)


define(
    Definition(
        OperationCode.SOFTMAX,
        (
            Variant(
                (
                    Input("input", rank=UP_TO_4),
                    Input("beta", float_scalar),
                    Input("axis", INT32, optional=True, since=FeatureLevel.HAL_1_2),
                )
            ),
        ),
        (Output("output", rank=UP_TO_4),),
        FLOAT_AND_QUANT8,
        _prepare,
        _check,
        zero_sized_ok=True,
    )
)
