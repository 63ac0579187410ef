# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT: a function of each element."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.rules import HAL_1_2_FLOATS
from nn_runtime.operations.signature import ANY_RANK, UP_TO_4, Definition, Input, Output, Variant, define
from nn_runtime.quantization import dequantize, quantize, quantized_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Array, OperandType
    from nn_runtime.operations.signature import Rank
    from nn_runtime.quantization import Quantized


def rsqrt_table(source: Quantized, output: Quantized) -> Array:
    """Return the 256 results of quantised RSQRT, indexed by the input's byte; 0 and below give the greatest code."""
    return _rsqrt_table(quantized_type(source), quantized_type(output))


@functools.lru_cache(maxsize=256)
def _rsqrt_table(source: OperandType, output: OperandType) -> Array:
    real = dequantize(np.arange(256, dtype=np.uint8).view(dtype_of(source.type)), source)
    roots = np.sqrt(np.where(real > 0, real, np.float32(1)))
    table = quantize(np.where(real > 0, np.float32(1) / roots, np.float32(np.inf)), output)
    table.flags.writeable = False
    return table


def _define(code: OperationCode, data_types: Mapping[int, FeatureLevel], rank: Rank = ANY_RANK) -> None:
    define(
        Definition(
            code,
            (Variant((Input("input", rank=rank),)),),
            (Output("output", rank=rank),),
            data_types,
            lambda op: (op.dimensions("input"),),
        )
    )


_define(OperationCode.ABS, {**HAL_1_2_FLOATS, OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_3})
_define(OperationCode.NEG, {**HAL_1_2_FLOATS, OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_2})
_define(OperationCode.FLOOR, {**HAL_1_2_FLOATS, OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0}, UP_TO_4)
for _code in (OperationCode.EXP, OperationCode.LOG, OperationCode.SIN, OperationCode.SQRT):
    _define(_code, HAL_1_2_FLOATS)
_define(
    OperationCode.RSQRT,
    {
        **HAL_1_2_FLOATS,
        OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.LEVEL_7,
        OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.LEVEL_7,
    },
)
