# SPDX-License-Identifier: Apache-2.0
"""PAD and PAD_V2: a constant around the input; MIRROR_PAD: its mirror image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES, dtype_of
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
    float_scalar,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


MIRROR_REFLECT, MIRROR_SYMMETRIC = 0, 1


def pad_amounts(op: OperationView) -> tuple[tuple[int, int], ...]:
    """Return how many elements come before and after each axis, all >= 0; raises BadData."""
    rank = len(op.dimensions("input"))
    values = op.int_values("paddings")
    if op.dimensions("paddings") != (rank, 2):
        op.fail("paddings", f"must have dimensions [{rank}, 2]", list(op.dimensions("paddings")))
    if min(values) < 0:
        op.fail("paddings", "must be >= 0", values)
    return tuple(zip(values[::2], values[1::2], strict=True))


def pad_value(op: OperationView) -> float:
    """Return the constant as it is stored in the output: for quantised types an integer in its quantised domain.

    Raises BadData for one that is outside this domain.
    """
    if op.data_type in FLOAT_TYPES:
        return 0.0 if op.optional("pad_value") is None else op.float_value("pad_value")
    if op.optional("pad_value") is None:
        return op.input("input").zero_point
    value, limits = op.int_value("pad_value"), np.iinfo(dtype_of(op.data_type))
    if not limits.min <= value <= limits.max:
        op.fail("pad_value", f"must be in {limits.min}..{limits.max}", value)
    return value


def mirror_pad_mode(op: OperationView) -> int:
    """Return MIRROR_REFLECT (the border element is not repeated) or MIRROR_SYMMETRIC (it is); raises BadData."""
    mode = op.int_value("mode")
    if mode not in (MIRROR_REFLECT, MIRROR_SYMMETRIC):
        op.fail("mode", "must be 0 (REFLECT) or 1 (SYMMETRIC)", mode)
    return mode


def _value_types(data_type: int) -> tuple[int, ...]:
    return tuple(float_scalar(data_type)) if data_type in FLOAT_TYPES else (OperandCode.INT32,)


def _check(op: OperationView) -> FeatureLevel:
    source = op.input("input")
    check_same_quantization(op, source)
    # HAL 1.1 padded with 0, whatever the zero point.
    return FeatureLevel.HAL_1_2 if source.zero_point else FeatureLevel.HAL_1_1


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = zip(op.dimensions("input"), pad_amounts(op), strict=True)
    return (tuple(before + size + after for size, (before, after) in sizes),)


def _check_mirror(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.LEVEL_7


def _prepare_mirror(op: OperationView) -> tuple[Dimensions, ...]:
    unusable = 1 if mirror_pad_mode(op) == MIRROR_REFLECT else 0
    for size, amounts in zip(op.dimensions("input"), pad_amounts(op), strict=True):
        if max(amounts) > size - unusable:
            op.fail("paddings", f"must be at most {size - unusable} for an axis of size {size}", max(amounts))
    return _prepare(op)


def _define(code: OperationCode, since: FeatureLevel, value: tuple[Input, ...]) -> None:
    tensors = (Input("input", rank=UP_TO_4), Input("paddings", INT32_TENSOR, (2, 2), parameter=True))
    data_types = {
        **FLOAT_AND_QUANT8,
        OperandCode.TENSOR_FLOAT32: since,
        OperandCode.TENSOR_QUANT8_ASYMM: since,
    }
    output = Output("output", rank=UP_TO_4)
    define(Definition(code, (Variant((*tensors, *value)),), (output,), data_types, _prepare, _check))


_define(OperationCode.PAD, FeatureLevel.HAL_1_1, ())
_define(OperationCode.PAD_V2, FeatureLevel.HAL_1_2, (Input("pad_value", _value_types),))
define(
    Definition(
        OperationCode.MIRROR_PAD,
        (
            Variant(
                (
                    Input("input", rank=ANY_RANK),
                    Input("paddings", INT32_TENSOR, (2, 2), parameter=True),
                    Input("mode", INT32),
                )
            ),
        ),
        (Output("output", rank=ANY_RANK),),
        dict.fromkeys(HAL_1_2_TYPES, FeatureLevel.LEVEL_7),
        _prepare_mirror,
        _check_mirror,
    )
)
