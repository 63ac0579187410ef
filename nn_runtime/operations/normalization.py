# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_fixed_quantization
from nn_runtime.operations.signature import (
    BOOL,
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

L2_EPSILON = 1e-6
"""Least norm that L2_NORMALIZATION divides real numbers by."""
L2_OUTPUT_SCALE = 1 / 128
"""Scale of a quantised L2_NORMALIZATION's output; its unsigned zero point is 128."""

_AXIS = Input("axis", INT32, optional=True, since=FeatureLevel.HAL_1_2)


def _rank_level(op: OperationView) -> FeatureLevel:
    """Return HAL 1.2 for ranks other than 4."""
    dims = op.input("input").dimensions
    return FeatureLevel.HAL_1_2 if dims and len(dims) != 4 else FeatureLevel.HAL_1_0


def _check_l2(op: OperationView) -> FeatureLevel:
    check_fixed_quantization(op, scale=L2_OUTPUT_SCALE, zero_point=128)
    return _rank_level(op)


def _prepare_along_axis(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    op.axis("axis", len(dims), default=-1)
    return (dims,)


def _prepare_local_response(op: OperationView) -> tuple[Dimensions, ...]:
    if op.int_value("radius") < 0:
        op.fail("radius", "must be >= 0", op.int_value("radius"))
    return _prepare_along_axis(op)


def _prepare_instance(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    if len(dims) != 4:
        op.fail("input", "must have rank 4", list(dims))
    return (dims,)


define(
    Definition(
        OperationCode.L2_NORMALIZATION,
        (Variant((Input("input", rank=UP_TO_4), _AXIS)),),
        (Output("output", rank=UP_TO_4),),
        {**FLOAT_AND_QUANT8, OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2},
        _prepare_along_axis,
        _check_l2,
    )
)
define(
    Definition(
        OperationCode.LOCAL_RESPONSE_NORMALIZATION,
        (
            Variant(
                (
                    Input("input", rank=UP_TO_4),
                    Input("radius", INT32),
                    Input("bias", float_scalar),
                    Input("alpha", float_scalar),
                    Input("beta", float_scalar),
                    _AXIS,
                )
            ),
        ),
        (Output("output", rank=UP_TO_4),),
        {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2},
        _prepare_local_response,
        _rank_level,
    )
)
define(
    Definition(
        OperationCode.INSTANCE_NORMALIZATION,
        (
            Variant(
                (
                    Input("input", rank=(4, 4)),
                    Input("gamma", float_scalar),
                    Input("beta", float_scalar),
                    Input("epsilon", float_scalar),
                    Input("layout", BOOL),
                )
            ),
        ),
        (Output("output", rank=(4, 4)),),
        {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2},
        _prepare_instance,
    )
)
