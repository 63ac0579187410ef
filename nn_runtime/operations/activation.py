# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH, ELU: one input, one output of its shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, FuseCode, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_fixed_quantization, check_same_quantization
from nn_runtime.operations.signature import (
    ANY_RANK,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    float_scalar,
)
from nn_runtime.quantization import (
    FixedPointMultiplier,
    fixed_point_multiplier,
    lookup_table,
    quantized_type,
    rounding_divide_by_pot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nn_runtime.operand import Array, Dimensions, OperandType
    from nn_runtime.operations.signature import Rank
    from nn_runtime.quantization import Quantized

RELU_BOUNDS: Mapping[int, FuseCode] = {
    OperationCode.RELU: FuseCode.RELU,
    OperationCode.RELU1: FuseCode.RELU1,
    OperationCode.RELU6: FuseCode.RELU6,
}
"""The fused activation that each clamping operation equals."""

_INT16_MIN, _INT16_MAX = -(2**15), 2**15 - 1


def activation_table(code: int, source: Quantized, output: Quantized) -> Array:
    """Return the 256 results of quantised LOGISTIC, TANH or HARD_SWISH, indexed by the input's byte."""
    return _table(code, quantized_type(source), quantized_type(output))


@functools.lru_cache(maxsize=256)
def _table(code: int, source: OperandType, output: OperandType) -> Array:
    if code == OperationCode.HARD_SWISH and output.scale * 128 > source.scale:
        table = _hard_swish_table(source, output)
    else:
        table = lookup_table(_REAL_FUNCTIONS[code], source, output)
    table.flags.writeable = False
    return table


def _logistic(real: Array) -> Array:
    # Exponentials of float64, rounded once, do not depend on the C library's float32 ones.
    exponentials = np.exp(-real.astype(np.float64).clip(-88)).astype(np.float32)
    result: Array = np.float32(1) / (np.float32(1) + exponentials)
    return result


def _tanh(real: Array) -> Array:
    result: Array = np.tanh(real.astype(np.float64)).astype(np.float32)
    return result


def _hard_swish(real: Array) -> Array:
    result: Array = real * np.clip(real + np.float32(3), 0, 6) / np.float32(6)
    return result


_REAL_FUNCTIONS: Mapping[int, Callable[[Array], Array]] = {
    OperationCode.LOGISTIC: _logistic,
    OperationCode.TANH: _tanh,
    OperationCode.HARD_SWISH: _hard_swish,
}


def _hard_swish_table(source: OperandType, output: OperandType) -> Array:
    """Return x * relu6(x + 3) / 6 in the 16-bit fixed-point arithmetic of TFLite's reference kernel.

    It is defined for an input scale below 128 times the output's.
    """
    info = np.iinfo(dtype_of(output.type))
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(source.type))
    fine = (codes.astype(np.int64) - source.zero_point) << 7
    fine_scale = np.float32(1 / 128) * np.float32(source.scale)
    to_output = fixed_point_multiplier(float(fine_scale / np.float32(output.scale)))
    unshifted = _high_mul16(fine, _mantissa16(to_output))
    halves = (_reluish(fine, float(fine_scale / np.float32(3 / 32768))) + 2**15) >> 1
    product = np.trunc(halves * unshifted / 2.0**15).astype(np.int64)
    result = _shift16(product, to_output.exponent) + output.zero_point
    table: Array = np.clip(result, info.min, info.max).astype(info.dtype)
    return table


def _reluish(fine: Array, real_multiplier: float) -> Array:
    """Return relu6(x + 3) / 3 - 1 = clamp(x / 3, -1, 1) in 16-bit fixed point."""
    multiplier = fixed_point_multiplier(real_multiplier)
    # The last bit of a left shift comes after the multiplication, to keep the bit that the multiplication needs.
    early, late = (multiplier.exponent - 1, 1) if multiplier.exponent > 0 else (0, multiplier.exponent)
    return _shift16(_high_mul16(_shift16(fine, early), _mantissa16(multiplier)), late)


def _mantissa16(multiplier: FixedPointMultiplier) -> int:
    return min((multiplier.mantissa + (1 << 15)) >> 16, _INT16_MAX)


def _high_mul16(values: Array, mantissa: int) -> Array:
    high: Array = np.minimum((values * mantissa + (1 << 14)) >> 15, _INT16_MAX)
    return high


def _shift16(values: Array, exponent: int) -> Array:
    """Return values * 2^exponent, saturated to the left, rounded to the right."""
    if exponent <= 0:
        return rounding_divide_by_pot(values, -exponent)
    shifted: Array = np.clip(values << exponent, _INT16_MIN, _INT16_MAX)
    return shifted


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (op.dimensions("input"),)


def _check_relu(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_0


def _check_logistic(op: OperationView) -> FeatureLevel:
    check_fixed_quantization(op, scale=1 / 256, zero_point=0)
    return FeatureLevel.HAL_1_0


def _check_tanh(op: OperationView) -> FeatureLevel:
    check_fixed_quantization(op, scale=1 / 128, zero_point=128)
    return FeatureLevel.HAL_1_0


def _define(
    code: OperationCode,
    check: Callable[[OperationView], FeatureLevel] = lambda _op: FeatureLevel.HAL_1_0,
    rank: Rank = UP_TO_4,
    data_types: Mapping[int, FeatureLevel] = FLOAT_AND_QUANT8,
) -> None:
    variant = Variant((Input("input", rank=rank),))
    define(
        Definition(code, (variant,), (Output("output", rank=rank),), data_types, _prepare, check, zero_sized_ok=True)
    )


for _code in RELU_BOUNDS:
    _define(OperationCode(_code), _check_relu)
_define(OperationCode.LOGISTIC, _check_logistic)
_define(
    OperationCode.TANH,
    _check_tanh,
    data_types={**FLOAT_AND_QUANT8, OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2},
)
_define(OperationCode.HARD_SWISH, rank=ANY_RANK, data_types=dict.fromkeys(FLOAT_AND_QUANT8, FeatureLevel.HAL_1_3))
define(
    Definition(
        OperationCode.ELU,
        (Variant((Input("input", rank=ANY_RANK), Input("alpha", float_scalar))),),
        (Output("output", rank=ANY_RANK),),
        {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_3, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_3},
        _prepare,
    )
)
