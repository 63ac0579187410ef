# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE and EXPAND_DIMS: the same elements under other dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import element_count
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, HAL_1_2_TYPES, check_same_quantization
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
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


def reshaped_dimensions(op: OperationView) -> Dimensions:
    """Return the output dimensions of a RESHAPE; one entry of the shape may be -1 for what is left. Raises BadData."""
    count = element_count(op.dimensions("input"))
    shape = op.int_values("shape")
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        op.fail("shape", "must have sizes >= 0 and at most one -1", shape)
    if -1 in shape:
        known = element_count(tuple(size for size in shape if size != -1))
        stretched = count // known if known else 0
        shape[shape.index(-1)] = stretched
    if element_count(tuple(shape)) != count:
        op.fail("shape", f"must hold {count} elements", op.int_values("shape"))
    return tuple(shape)


def squeezed_dimensions(op: OperationView) -> Dimensions:
    """Return the output dimensions of a SQUEEZE: without the given axes of size 1, or without all. Raises BadData."""
    dims = op.dimensions("input")
    if op.optional("axes") is None:
        dropped = {axis for axis, size in enumerate(dims) if size == 1}
    else:
        dropped = {op.normalized_axis("axes", axis, len(dims)) for axis in op.int_values("axes")}
        if any(dims[axis] != 1 for axis in dropped):
            op.fail("axes", f"must name axes of size 1 of {list(dims)}", op.int_values("axes"))
    return tuple(size for axis, size in enumerate(dims) if axis not in dropped) or (1,)


def expanded_dimensions(op: OperationView) -> Dimensions:
    """Return the output dimensions of an EXPAND_DIMS: a size 1 before the axis; raises BadData."""
    dims = op.dimensions("input")
    axis = op.axis("axis", len(dims) + 1)
    return (*dims[:axis], 1, *dims[axis:])


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_0


define(
    Definition(
        OperationCode.RESHAPE,
        (Variant((Input("input", rank=UP_TO_4), Input("shape", INT32_TENSOR, (1, 1), parameter=True))),),
        (Output("output"),),
        {**FLOAT_AND_QUANT8, OperandCode.TENSOR_INT32: FeatureLevel.LEVEL_6},
        lambda op: (reshaped_dimensions(op),),
        _check,
    )
)
define(
    Definition(
        OperationCode.SQUEEZE,
        (Variant((Input("input", rank=UP_TO_4), Input("axes", INT32_TENSOR, (1, 1), omittable=True, parameter=True))),),
        (Output("output"),),
        {
            **FLOAT_AND_QUANT8,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_1,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_1,
        },
        lambda op: (squeezed_dimensions(op),),
        _check,
    )
)
define(
    Definition(
        OperationCode.EXPAND_DIMS,
        (Variant((Input("input", rank=ANY_RANK), Input("axis", INT32))),),
        (Output("output"),),
        HAL_1_2_TYPES,
        lambda op: (expanded_dimensions(op),),
        _check,
    )
)
