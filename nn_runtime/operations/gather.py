# SPDX-License-Identifier: Apache-2.0
"""GATHER, EMBEDDING_LOOKUP and HASHTABLE_LOOKUP: slices chosen by index or by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_TYPES, check_same_quantization
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
    from nn_runtime.operand import Array, Dimensions


def check_indices(op: OperationView, name: str, indices: Array, limit: int) -> None:
    """Check that all indices are in [0, limit); raises BadData."""
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < limit:
        op.fail(name, f"must be in [0, {limit})", f"{indices.min()} to {indices.max()}")


def _check_gather(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_2


def _prepare_gather(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    axis = op.axis("axis", len(dims))
    return ((*dims[:axis], *op.dimensions("indices"), *dims[axis + 1 :]),)


def _check_lookup(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("values"))
    return FeatureLevel.HAL_1_0


def _prepare_lookup(op: OperationView) -> tuple[Dimensions, ...]:
    return ((*op.dimensions("lookups"), *op.dimensions("values")[1:]),)


def _check_hashtable(op: OperationView) -> FeatureLevel:
    hits = op.outputs[1]
    if (hits.scale, hits.zero_point) != (1.0, 0):
        op.fail("output 1", "must have scale 1.0 and zero point 0", f"{hits.scale} and {hits.zero_point}")
    return _check_lookup(op)


def _prepare_hashtable(op: OperationView) -> tuple[Dimensions, ...]:
    if op.dimensions("keys") != op.dimensions("values")[:1]:
        wanted = list(op.dimensions("values")[:1])
        op.fail("keys", f"must have dimensions {wanted}, one for each value", list(op.dimensions("keys")))
    return *_prepare_lookup(op), op.dimensions("lookups")


define(
    Definition(
        OperationCode.GATHER,
        (Variant((Input("input", rank=ANY_RANK), Input("axis", INT32), Input("indices", INT32_TENSOR, ANY_RANK))),),
        (Output("output"),),
        HAL_1_2_TYPES,
        _prepare_gather,
        _check_gather,
    )
)
define(
    Definition(
        OperationCode.EMBEDDING_LOOKUP,
        (Variant((Input("lookups", INT32_TENSOR, (1, 1)), Input("values", rank=(2, ANY_RANK[1])))),),
        (Output("output", rank=(2, ANY_RANK[1])),),
        {
            **HAL_1_2_TYPES,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0,
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_3,
        },
        _prepare_lookup,
        _check_lookup,
        data_input=1,
    )
)
define(
    Definition(
        OperationCode.HASHTABLE_LOOKUP,
        (
            Variant(
                (
                    Input("lookups", INT32_TENSOR, (1, 1)),
                    Input("keys", INT32_TENSOR, (1, 1)),
                    Input("values", rank=ANY_RANK),
                )
            ),
        ),
        (Output("output", rank=ANY_RANK), Output("hits", only(OperandCode.TENSOR_QUANT8_ASYMM), (1, 1))),
        {
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0,
            OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_0,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_0,
        },
        _prepare_hashtable,
        _check_hashtable,
        data_input=2,
    )
)
