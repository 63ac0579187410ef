# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV with a fused activation, MAXIMUM, MINIMUM, POW, PRELU: two broadcast inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.rules import HAL_1_2_FLOATS, HAL_1_2_TYPES, broadcast_dimensions
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.quantization import FixedPointMultiplier, fixed_point_multiplier
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Dimensions

ADD_LEFT_SHIFT = 20
"""Bits that ADD and SUB shift both centred inputs left by before they rescale them."""


@dataclass(frozen=True)
class AddParameters:
    """Fixed-point factors of quantised ADD and SUB, after TFLite's reference kernel.

    Each centred input q - zero_point is shifted left by ADD_LEFT_SHIFT and multiplied by its factor (scale over twice
    the larger scale); the sum or difference is multiplied by `output`, then the output's zero point is added.
    """

    input0: FixedPointMultiplier
    input1: FixedPointMultiplier
    output: FixedPointMultiplier


@functools.lru_cache(maxsize=1024)
def add_parameters(scale0: float, scale1: float, output_scale: float) -> AddParameters:
    """Return the factors of ADD and SUB for three float32 scales."""
    twice_larger = 2.0 * max(scale0, scale1)
    return AddParameters(
        fixed_point_multiplier(scale0 / twice_larger),
        fixed_point_multiplier(scale1 / twice_larger),
        fixed_point_multiplier(twice_larger / (2.0**ADD_LEFT_SHIFT * output_scale)),
    )


@functools.lru_cache(maxsize=1024)
def mul_multiplier(scale0: float, scale1: float, output_scale: float) -> FixedPointMultiplier:
    """Return the factor of quantised MUL's centred product; scales are combined in float32 as the reference does."""
    product = np.float32(scale0) * np.float32(scale1)
    return fixed_point_multiplier(float(product / np.float32(output_scale)))


@dataclass(frozen=True)
class PreluMultipliers:
    """Fixed-point factors of quantised PRELU: of the centred input where it is >= 0, else of its product with alpha."""

    positive: FixedPointMultiplier
    negative: FixedPointMultiplier


@functools.lru_cache(maxsize=1024)
def prelu_multipliers(input_scale: float, alpha_scale: float, output_scale: float) -> PreluMultipliers:
    """Return the factors of PRELU for three float32 scales, combined in float32 where the reference does."""
    product = float(np.float32(input_scale) * np.float32(alpha_scale))
    return PreluMultipliers(
        fixed_point_multiplier(float(np.float32(input_scale) / np.float32(output_scale))),
        fixed_point_multiplier(product / output_scale),
    )


def _check(op: OperationView) -> FeatureLevel:
    activation = op.input("activation").value()
    if op.data_type == OperandCode.TENSOR_INT32 and activation is not None and op.fuse_code() != FuseCode.NONE:
        op.fail("activation", "must be NONE for TENSOR_INT32", op.fuse_code().name)
    return FeatureLevel.HAL_1_0


def _check_mul(op: OperationView) -> FeatureLevel:
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    if first.type in QUANT8_TYPES and not output.scale > first.scale * second.scale:
        op.fail("output 0", f"must have a scale > {first.scale * second.scale} (input scales multiplied)", output.scale)
    return _check(op)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    op.fuse_code()
    _check(op)
    return (broadcast_dimensions(op, op.dimensions("input0"), op.dimensions("input1")),)


def _define(code: OperationCode, float32_since: FeatureLevel, quant8_since: FeatureLevel | None) -> None:
    data_types: dict[int, FeatureLevel] = {
        OperandCode.TENSOR_FLOAT32: float32_since,
        OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
        OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_3,
    }
    if quant8_since is not None:
        data_types[OperandCode.TENSOR_QUANT8_ASYMM] = quant8_since
        data_types[OperandCode.TENSOR_QUANT8_ASYMM_SIGNED] = FeatureLevel.HAL_1_3
    inputs = (Input("input0", rank=UP_TO_4), Input("input1", rank=UP_TO_4), Input("activation", INT32))
    define(
        Definition(
            code,
            (Variant(inputs),),
            (Output("output", rank=UP_TO_4),),
            data_types,
            _prepare,
            _check_mul if code == OperationCode.MUL else _check,
            zero_sized_ok=True,
        )
    )


_define(OperationCode.ADD, FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_0)
_define(OperationCode.MUL, FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_0)
_define(OperationCode.SUB, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2)
_define(OperationCode.DIV, FeatureLevel.HAL_1_1, None)


def _define_pair(code: OperationCode, names: tuple[str, str], data_types: Mapping[int, FeatureLevel]) -> None:
    first, second = names
    define(
        Definition(
            code,
            (Variant((Input(first, rank=ANY_RANK), Input(second, rank=ANY_RANK))),),
            (Output("output", rank=ANY_RANK),),
            data_types,
            lambda op: (broadcast_dimensions(op, op.dimensions(first), op.dimensions(second)),),
        )
    )


_define_pair(OperationCode.MAXIMUM, ("input0", "input1"), HAL_1_2_TYPES)
_define_pair(OperationCode.MINIMUM, ("input0", "input1"), HAL_1_2_TYPES)
_define_pair(OperationCode.POW, ("base", "exponent"), HAL_1_2_FLOATS)
_define_pair(
    OperationCode.PRELU,
    ("input", "alpha"),
    {code: since for code, since in HAL_1_2_TYPES.items() if code != OperandCode.TENSOR_INT32},
)
