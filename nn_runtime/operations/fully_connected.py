# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, FuseCode, OperationCode
from nn_runtime.operand import element_count
from nn_runtime.operations.conv import check_bias_scale, scale_level
from nn_runtime.operations.rules import FLOAT_AND_QUANT8
from nn_runtime.operations.signature import (
    INT32,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    bias_of_data,
    define,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class FullyConnected:
    """Sizes of one operation: input [batches, input_size], weights [units, input_size], output [batches, units]."""

    batches: int
    input_size: int
    units: int
    activation: FuseCode


def fully_connected_sizes(op: OperationView) -> FullyConnected:
    """Return the sizes of a FULLY_CONNECTED; a higher rank of the input is flattened. Raises BadData."""
    dims, weights = op.dimensions("input"), op.dimensions("weights")
    if len(weights) != 2 or 0 in weights:
        op.fail("weights", "must have rank 2 and no size 0", list(weights))
    units, input_size = weights
    if len(dims) < 2 or element_count(dims) % input_size:
        op.fail("input", f"must have rank >= 2 and whole rows of {input_size} elements", list(dims))
    if op.dimensions("bias") != (units,):
        op.fail("bias", f"must have dimensions [{units}]", list(op.dimensions("bias")))
    return FullyConnected(element_count(dims) // input_size, input_size, units, op.fuse_code())


def _check(op: OperationView) -> FeatureLevel:
    return scale_level(op, op.input("weights"))


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = fully_connected_sizes(op)
    check_bias_scale(op, op.input("weights"))
    return ((sizes.batches, sizes.units),)


define(
    Definition(
        OperationCode.FULLY_CONNECTED,
        (
            Variant(
                (
                    Input("input", rank=(2, 4)),
                    Input("weights", rank=(2, 2)),
                    Input("bias", bias_of_data, (1, 1)),
                    Input("activation", INT32),
                )
            ),
        ),
        (Output("output", rank=(2, 2)),),
        FLOAT_AND_QUANT8,
        _prepare,
        _check,
        zero_sized_ok=True,
    )
)
