# SPDX-License-Identifier: Apache-2.0
"""CHANNEL_SHUFFLE: the groups of one axis interleaved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES, check_same_quantization
from nn_runtime.operations.signature import INT32, UP_TO_4, Definition, Input, OperationView, Output, Variant, define
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class ChannelShuffle:
    """Along `axis`, output element k * groups + g is input element g * (size / groups) + k."""

    axis: int
    groups: int


def channel_shuffle(op: OperationView) -> ChannelShuffle:
    """Return axis and number of groups; raises BadData where they do not divide the axis."""
    dims, groups = op.dimensions("input"), op.int_value("num_groups")
    axis = op.axis("axis", len(dims))
    if groups < 1 or dims[axis] % groups:
        op.fail("num_groups", f"must divide the axis of size {dims[axis]}", groups)
    return ChannelShuffle(axis, groups)


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    channel_shuffle(op)
    return (op.dimensions("input"),)


define(
    Definition(
        OperationCode.CHANNEL_SHUFFLE,
        (Variant((Input("input", rank=UP_TO_4), Input("num_groups", INT32), Input("axis", INT32))),),
        (Output("output", rank=UP_TO_4),),
        {code: since for code, since in HAL_1_2_TYPES.items() if code != OperandCode.TENSOR_INT32},
        _prepare,
        _check,
    )
)
