# SPDX-License-Identifier: Apache-2.0
"""RANK: the number of dimensions, as a scalar."""

from __future__ import annotations

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import ANY_RANK, INT32, Definition, Input, Output, Variant, define

define(
    Definition(
        OperationCode.RANK,
        (Variant((Input("input", rank=ANY_RANK),)),),
        (Output("output", INT32),),
        dict.fromkeys(
            (
                OperandCode.TENSOR_FLOAT16,
                OperandCode.TENSOR_FLOAT32,
                OperandCode.TENSOR_INT32,
                OperandCode.TENSOR_QUANT8_ASYMM,
                OperandCode.TENSOR_QUANT16_SYMM,
                OperandCode.TENSOR_BOOL8,
                OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
                OperandCode.TENSOR_QUANT16_ASYMM,
                OperandCode.TENSOR_QUANT8_SYMM,
                OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
            ),
            FeatureLevel.HAL_1_3,
        ),
        lambda _op: ((),),
    )
)
