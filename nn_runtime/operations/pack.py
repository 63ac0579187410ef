# SPDX-License-Identifier: Apache-2.0
"""PACK: inputs of one shape stacked along a new axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES
from nn_runtime.operations.signature import ANY_RANK, INT32, Definition, Input, OperationView, Output, Variant, define

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


def pack_axis(op: OperationView) -> int:
    """Return the new axis, which must be in [0, rank of an input]; raises BadData."""
    axis, rank = op.int_value("axis"), len(op.dimensions("input"))
    if not 0 <= axis <= rank:
        op.fail("axis", f"must be in [0, {rank + 1})", axis)
    return axis


def _check(op: OperationView) -> FeatureLevel:
    first = op.input("input")
    wanted = (first.scale, first.zero_point)
    for operand in (*op.all_inputs("input"), *op.outputs):
        if (operand.scale, operand.zero_point) != wanted:
            op.fail(
                "input",
                f"and all others must have scale {wanted[0]} and zero point {wanted[1]}",
                f"{operand.scale} and {operand.zero_point}",
            )
    _check_ranks(op)
    return FeatureLevel.LEVEL_6


def _check_ranks(op: OperationView) -> None:
    """Check that the inputs of known rank agree, and with the output, which has one axis more."""
    output = op.outputs[0].dimensions
    wanted = len(output) - 1 if output else None
    for operand in op.all_inputs("input"):
        if not operand.dimensions:
            continue
        if wanted is None:
            wanted = len(operand.dimensions)
        if len(operand.dimensions) != wanted:
            op.fail("input", f"must have rank {wanted} as the other operands say", list(operand.dimensions))


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    axis, dims, inputs = pack_axis(op), op.dimensions("input"), op.all_inputs("input")
    for operand in inputs:
        if operand.dimensions != dims:
            op.fail("input", f"must have dimensions {list(dims)}", list(operand.dimensions or ()))
    return ((*dims[:axis], len(inputs), *dims[axis:]),)


define(
    Definition(
        OperationCode.PACK,
        (Variant((Input("axis", INT32), Input("input", rank=ANY_RANK)), repeated="input"),),
        (Output("output"),),
        dict.fromkeys(HAL_1_2_TYPES, FeatureLevel.LEVEL_6),
        _prepare,
        _check,
        data_input=1,
    )
)
