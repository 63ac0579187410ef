# SPDX-License-Identifier: Apache-2.0
"""Which operand types a version of the HAL knows."""

from __future__ import annotations

from nn_runtime.codes import FeatureLevel, OperandCode

_SINCE_1_0 = frozenset(
    {
        OperandCode.FLOAT32,
        OperandCode.INT32,
        OperandCode.UINT32,
        OperandCode.TENSOR_FLOAT32,
        OperandCode.TENSOR_INT32,
        OperandCode.TENSOR_QUANT8_ASYMM,
        OperandCode.OEM_SCALAR,
        OperandCode.TENSOR_OEM_BYTE,
    }
)
_SINCE_1_3 = frozenset({OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.MODEL})


def types_of(version: int) -> frozenset[OperandCode]:
    """Return the operand types that a version has figures for (never MODEL: it has no data)."""
    if version < FeatureLevel.HAL_1_2:
        return _SINCE_1_0
    without = _SINCE_1_3 if version < FeatureLevel.HAL_1_3 else {OperandCode.MODEL}
    return frozenset(OperandCode) - without
