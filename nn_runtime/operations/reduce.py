# SPDX-License-Identifier: Apache-2.0
"""MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM: reduction over a set of axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8, HAL_1_2_FLOATS, check_same_quantization
from nn_runtime.operations.signature import (
    BOOL,
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
from nn_runtime.quantization import FixedPointMultiplier
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class Reduction:
    """Axes to reduce, ascending and each once, and the output's dimensions ([1] where nothing is left)."""

    axes: tuple[int, ...]
    dimensions: Dimensions


def reduction(op: OperationView) -> Reduction:
    """Return a reduction's axes and output dimensions; raises BadData for an axis out of range."""
    dims = op.dimensions("input")
    axes = tuple(sorted({op.normalized_axis("axes", axis, len(dims)) for axis in op.int_values("axes")}))
    if op.int_value("keep_dims") > 0:
        return Reduction(axes, tuple(1 if i in axes else size for i, size in enumerate(dims)))
    return Reduction(axes, tuple(size for i, size in enumerate(dims) if i not in axes) or (1,))


def merged_axes(dims: Dimensions, axes: Sequence[int]) -> tuple[Dimensions, list[int]]:
    """Return dimensions with neighbours put together that are all reduced or all kept, and which are reduced.

    Dimensions of 1 are neither, and go, unless there are no others.
    """
    merged: list[int] = []
    reduced: list[bool] = []
    for axis, size in enumerate(dims):
        if size == 1 and math.prod(dims) != 1:
            continue
        if reduced and reduced[-1] == (axis in axes):
            merged[-1] *= size
        else:
            merged.append(size)
            reduced.append(axis in axes)
    return tuple(merged), [at for at, is_reduced in enumerate(reduced) if is_reduced]


def mean_multiplier(count: int) -> FixedPointMultiplier:
    """Return 1 / count, 1 <= count < 2^32, for the sum of `count` centred values.

    The mantissa is cut, not rounded, as in TFLite's kernel, so that an exact half may be rounded towards zero; it may
    be under 2^30.
    """
    shift = count.bit_length() - 1
    return FixedPointMultiplier((1 << (30 + shift)) // count, 1 - shift)


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_1


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (reduction(op).dimensions,)


define(
    Definition(
        OperationCode.MEAN,
        (
            Variant(
                (
                    Input("input", rank=UP_TO_4),
                    Input("axes", INT32_TENSOR, rank=(1, 1), parameter=True),
                    Input("keep_dims", INT32),
                )
            ),
        ),
        (Output("output", rank=UP_TO_4),),
        {
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_1,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_1,
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
        },
        _prepare,
        _check,
    )
)


def _define(code: OperationCode, data_types: Mapping[int, FeatureLevel]) -> None:
    inputs = (
        Input("input", rank=UP_TO_4),
        Input("axes", INT32_TENSOR, rank=(1, 1), parameter=True),
        Input("keep_dims", BOOL),
    )
    define(Definition(code, (Variant(inputs),), (Output("output", rank=UP_TO_4),), data_types, _prepare, _check))


_define(OperationCode.REDUCE_ALL, {OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_2})
_define(OperationCode.REDUCE_ANY, {OperandCode.TENSOR_BOOL8: FeatureLevel.HAL_1_2})
_define(OperationCode.REDUCE_MAX, HAL_1_2_FLOAT_AND_QUANT8)
_define(OperationCode.REDUCE_MIN, HAL_1_2_FLOAT_AND_QUANT8)
_define(OperationCode.REDUCE_PROD, HAL_1_2_FLOATS)
_define(OperationCode.REDUCE_SUM, HAL_1_2_FLOATS)
