# SPDX-License-Identifier: Apache-2.0
"""LSH_PROJECTION: signatures of an input by locality-sensitive hashing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    only,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

SPARSE_DEPRECATED, DENSE, SPARSE = 1, 2, 3


def projection_type(op: OperationView) -> int:
    """Return SPARSE_DEPRECATED, DENSE or SPARSE; raises BadData for another number."""
    kind = op.int_value("type")
    if kind not in (SPARSE_DEPRECATED, DENSE, SPARSE):
        op.fail("type", "must be 1 (SPARSE_DEPRECATED), 2 (DENSE) or 3 (SPARSE)", kind)
    return kind


def _check(op: OperationView) -> FeatureLevel:
    known = op.input("type").value() is not None
    return FeatureLevel.HAL_1_2 if known and op.int_value("type") == SPARSE else FeatureLevel.HAL_1_0


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    hashes, bits = op.dimensions("hash")
    rows = op.dimensions("input")[0]
    if op.optional("weight") is not None and op.dimensions("weight") != (rows,):
        op.fail("weight", f"must have dimensions [{rows}]", list(op.dimensions("weight")))
    dense = projection_type(op) == DENSE
    if not dense and bits > 32:
        op.fail("hash", "must have at most 32 bits in a row", bits)
    return ((hashes * bits,) if dense else (hashes,),)


define(
    Definition(
        OperationCode.LSH_PROJECTION,
        (
            Variant(
                (
                    Input("hash", rank=(2, 2)),
                    Input(
                        "input",
                        only(
                            OperandCode.TENSOR_FLOAT16,
                            OperandCode.TENSOR_FLOAT32,
                            OperandCode.TENSOR_INT32,
                            OperandCode.TENSOR_QUANT8_ASYMM,
                        ),
                        ANY_RANK,
                    ),
                    Input("weight", rank=(1, 1), omittable=True),
                    Input("type", INT32),
                )
            ),
        ),
        (Output("output", INT32_TENSOR, (1, 1)),),
        {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2},
        _prepare,
        _check,
    )
)
