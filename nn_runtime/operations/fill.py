# SPDX-License-Identifier: Apache-2.0
"""FILL: a tensor of one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode, operand_type_name
from nn_runtime.operations.signature import ANY_RANK, Definition, Input, OperationView, Output, Variant, define, only

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

_TENSOR_OF_SCALAR: dict[int, OperandCode] = {
    OperandCode.FLOAT16: OperandCode.TENSOR_FLOAT16,
    OperandCode.FLOAT32: OperandCode.TENSOR_FLOAT32,
    OperandCode.INT32: OperandCode.TENSOR_INT32,
}


def _check(op: OperationView) -> FeatureLevel:
    wanted = _TENSOR_OF_SCALAR[op.input("value").type]
    if op.outputs[0].type != wanted:
        op.fail("output 0", f"must be {wanted.name}, as the value", operand_type_name(op.outputs[0].type))
    return FeatureLevel.HAL_1_3


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.int_values("dims")
    if min(dims, default=0) < 0:
        op.fail("dims", "must be >= 0", dims)
    return (tuple(dims),)


define(
    Definition(
        OperationCode.FILL,
        (
            Variant(
                (
                    Input("dims", rank=(1, 1), parameter=True),
                    Input("value", only(OperandCode.FLOAT16, OperandCode.FLOAT32, OperandCode.INT32)),
                )
            ),
        ),
        (Output("output", only(*_TENSOR_OF_SCALAR.values()), ANY_RANK),),
        {OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_3},
        _prepare,
        _check,
    )
)
