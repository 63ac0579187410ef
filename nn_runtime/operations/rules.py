# SPDX-License-Identifier: Apache-2.0
"""Checks and shape rules that several families share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode
from nn_runtime.errors import BadData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Dimensions, OperandView
    from nn_runtime.operations.signature import OperationView

FLOAT_AND_QUANT8: Mapping[int, FeatureLevel] = {
    OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0,
    OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_0,
    OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
}
"""Data types of the operations that HAL 1.0 brought for float32 and 8-bit."""

HAL_1_2_FLOATS: Mapping[int, FeatureLevel] = {
    OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
}
"""Data types of the operations that HAL 1.2 brought for floats alone."""

HAL_1_2_FLOAT_AND_QUANT8: Mapping[int, FeatureLevel] = {
    **HAL_1_2_FLOATS,
    OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
}
"""Data types of the operations that HAL 1.2 brought for floats and 8-bit."""

HAL_1_2_TYPES: Mapping[int, FeatureLevel] = {
    **HAL_1_2_FLOAT_AND_QUANT8,
    OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_2,
}
"""Data types of most operations that HAL 1.2 brought."""


def check_fixed_quantization(op: OperationView, scale: float, zero_point: int) -> None:
    """Check that a quantised output has the scale and (unsigned) zero point that the operation fixes."""
    output = op.outputs[0]
    if output.type not in (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED):
        return
    wanted_zero = zero_point - 128 if output.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else zero_point
    if output.scale != scale or output.zero_point != wanted_zero:
        raise BadData(
            f"{op.label}: output 0 must have scale {scale} and zero point {wanted_zero}, "
            f"got {output.scale} and {output.zero_point}"
        )


def check_same_quantization(op: OperationView, first: OperandView) -> None:
    """Check that output 0 has scale and zero point of `first`."""
    output = op.outputs[0]
    if (output.scale, output.zero_point) != (first.scale, first.zero_point):
        raise BadData(
            f"{op.label}: output 0 must have scale {first.scale} and zero point {first.zero_point}, "
            f"got {output.scale} and {output.zero_point}"
        )


def broadcast_dimensions(op: OperationView, first: Dimensions, second: Dimensions) -> Dimensions:
    """Return the common shape of two broadcast inputs, aligned at the last axis; a size 0 goes with 0 and 1 alone."""
    rank = max(len(first), len(second))
    a = (1,) * (rank - len(first)) + first
    b = (1,) * (rank - len(second)) + second
    if any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
        raise BadData(f"{op.label}: inputs of shapes {list(first)} and {list(second)} do not broadcast")
    return tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))
