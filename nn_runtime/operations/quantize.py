# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE, CAST: the same elements in another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import (
    ANY_RANK,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    only,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Dimensions

_CASTABLE = (
    OperandCode.TENSOR_FLOAT16,
    OperandCode.TENSOR_FLOAT32,
    OperandCode.TENSOR_INT32,
    OperandCode.TENSOR_QUANT8_ASYMM,
)
_CAST_TO_ITSELF = (
    OperandCode.TENSOR_BOOL8,
    OperandCode.TENSOR_QUANT16_ASYMM,
    OperandCode.TENSOR_QUANT16_SYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandCode.TENSOR_QUANT8_SYMM,
)


def _cast_types(data_type: int) -> Iterable[int]:
    return _CASTABLE if data_type in _CASTABLE else (data_type,)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (op.dimensions("input"),)


def _check_quantize(op: OperationView) -> FeatureLevel:
    signed = op.outputs[0].type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    return FeatureLevel.HAL_1_3 if signed else FeatureLevel.HAL_1_2


def _check_dequantize(op: OperationView) -> FeatureLevel:
    half = op.outputs[0].type == OperandCode.TENSOR_FLOAT16
    return FeatureLevel.HAL_1_2 if half else FeatureLevel.HAL_1_0


define(
    Definition(
        OperationCode.QUANTIZE,
        (Variant((Input("input", rank=ANY_RANK),)),),
        (
            Output(
                "output",
                only(OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED),
                rank=ANY_RANK,
            ),
        ),
        {
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
        },
        _prepare,
        _check_quantize,
        zero_sized_ok=True,
    )
)
define(
    Definition(
        OperationCode.DEQUANTIZE,
        (Variant((Input("input", rank=UP_TO_4),)),),
        (Output("output", only(OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_FLOAT32), rank=UP_TO_4),),
        {
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_0,
            OperandCode.TENSOR_QUANT8_SYMM: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
        },
        _prepare,
        _check_dequantize,
        zero_sized_ok=True,
    )
)
define(
    Definition(
        OperationCode.CAST,
        (Variant((Input("input", rank=ANY_RANK),)),),
        (Output("output", _cast_types, rank=ANY_RANK),),
        {
            **dict.fromkeys(_CASTABLE, FeatureLevel.HAL_1_2),
            **dict.fromkeys(_CAST_TO_ITSELF, FeatureLevel.HAL_1_3),
        },
        _prepare,
    )
)
