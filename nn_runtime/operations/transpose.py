# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_same_quantization
from nn_runtime.operations.signature import (
    INT32_TENSOR,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def permutation(op: OperationView) -> tuple[int, ...]:
    """Return which input axis each output axis is: `perm`, or all axes reversed where it is omitted. Raises BadData."""
    rank = len(op.dimensions("input"))
    if op.optional("perm") is None:
        return tuple(reversed(range(rank)))
    axes = op.int_values("perm")
    if sorted(axes) != list(range(rank)):
        op.fail("perm", f"must be a permutation of 0 to {rank - 1}", axes)
    return tuple(axes)


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_1


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    return (tuple(dims[axis] for axis in permutation(op)),)


define(
    Definition(
        OperationCode.TRANSPOSE,
        (Variant((Input("input", rank=UP_TO_4), Input("perm", INT32_TENSOR, (1, 1), omittable=True, parameter=True))),),
        (Output("output", rank=UP_TO_4),),
        {
            **FLOAT_AND_QUANT8,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_1,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_1,
        },
        _prepare,
        _check,
        zero_sized_ok=True,
    )
)
