# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: products of pairs of matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import BOOL, Definition, Input, OperationView, Output, Variant, define
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations.signature import Rank


@dataclass(frozen=True)
class BatchMatmul:
    """Sizes of output [batches, rows, columns] = lhs [batches, rows, depth] @ rhs [batches, depth, columns].

    `adj_x`, `adj_y`: that side is stored with its last two axes swapped. `leading` are the dimensions of `batches`.
    """

    leading: Dimensions
    rows: int
    columns: int
    depth: int
    adj_x: bool
    adj_y: bool

    @property
    def batches(self) -> int:
        """Number of products."""
        return math.prod(self.leading)


def batch_matmul_sizes(op: OperationView) -> BatchMatmul:
    """Return the sizes of an operation whose dimensions and scalars are known; raises BadData."""
    lhs, rhs = op.dimensions("lhs"), op.dimensions("rhs")
    adj_x, adj_y = op.bool_value("adj_x"), op.bool_value("adj_y")
    if not 2 <= len(lhs) <= 4:
        op.fail("lhs", "must have rank 2 to 4", list(lhs))
    rows, depth = (lhs[-1], lhs[-2]) if adj_x else (lhs[-2], lhs[-1])
    if len(rhs) != len(lhs) or rhs[:-2] != lhs[:-2]:
        op.fail("rhs", f"must have rank and batches of lhs {list(lhs)}", list(rhs))
    rhs_depth, columns = (rhs[-1], rhs[-2]) if adj_y else (rhs[-2], rhs[-1])
    if rhs_depth != depth:
        op.fail("rhs", f"must have depth {depth}, that of lhs", rhs_depth)
    return BatchMatmul(lhs[:-2], rows, columns, depth, adj_x, adj_y)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = batch_matmul_sizes(op)
    return ((*sizes.leading, sizes.rows, sizes.columns),)


_RANK: Rank = (2, 4)

define(
    Definition(
        OperationCode.BATCH_MATMUL,
        (Variant((Input("lhs", rank=_RANK), Input("rhs", rank=_RANK), Input("adj_x", BOOL), Input("adj_y", BOOL))),),
        (Output("output", rank=_RANK),),
        dict.fromkeys(
            (
                OperandCode.TENSOR_FLOAT16,
                OperandCode.TENSOR_FLOAT32,
                OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
                OperandCode.TENSOR_INT32,
            ),
            FeatureLevel.LEVEL_6,
        ),
        _prepare,
    )
)
