# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR of two broadcast inputs, LOGICAL_NOT of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import broadcast_dimensions
from nn_runtime.operations.signature import ANY_RANK, Definition, Input, OperationView, Output, Variant, define

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Dimensions


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (broadcast_dimensions(op, op.dimensions("input0"), op.dimensions("input1")),)


_BOOLS: Mapping[int, FeatureLevel] = {OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_2}
_OUTPUTS = (Output("output", rank=ANY_RANK),)
_PAIR = Variant((Input("input0", rank=ANY_RANK), Input("input1", rank=ANY_RANK)))

define(Definition(OperationCode.LOGICAL_AND, (_PAIR,), _OUTPUTS, _BOOLS, _prepare))
define(Definition(OperationCode.LOGICAL_OR, (_PAIR,), _OUTPUTS, _BOOLS, _prepare))
define(
    Definition(
        OperationCode.LOGICAL_NOT,
        (Variant((Input("input", rank=ANY_RANK),)),),
        _OUTPUTS,
        _BOOLS,
        lambda op: (op.dimensions("input"),),
    )
)
