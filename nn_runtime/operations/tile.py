# SPDX-License-Identifier: Apache-2.0
"""TILE: the input repeated along each axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES, check_same_quantization
from nn_runtime.operations.signature import (
    ANY_RANK,
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


def tile_multiples(op: OperationView) -> tuple[int, ...]:
    """Return how often the input is repeated along each axis, all >= 0; raises BadData."""
    rank, multiples = len(op.dimensions("input")), op.int_values("multiples")
    if len(multiples) != rank or min(multiples) < 0:
        op.fail("multiples", f"must be {rank} numbers >= 0", multiples)
    return tuple(multiples)


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (tuple(size * times for size, times in zip(op.dimensions("input"), tile_multiples(op), strict=True)),)


define(
    Definition(
        OperationCode.TILE,
        (Variant((Input("input", rank=ANY_RANK), Input("multiples", INT32_TENSOR, (1, 1), parameter=True))),),
        (Output("output", rank=ANY_RANK),),
        HAL_1_2_TYPES,
        _prepare,
        _check,
    )
)
