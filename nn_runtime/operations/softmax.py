# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX, and the fixed-point parts of its quantised form."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_fixed_quantization
from nn_runtime.operations.signature import (
    INT32,
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
    fixed_point_multiplier,
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

_DIFFERENCE_INTEGER_BITS = 5
_SUM_INTEGER_BITS = 12
_ONE = 2**31 - 1
"""1.0 in the format without integer bits."""


@dataclass(frozen=True)
class SoftmaxTables:
    """Quantised exponentials of d = max - q, 0 <= d <= 255 (int32 [256]); 0 where the reference drops the term.

    Source: TFLite's reference kernel. A row's result is made from its sum s of `terms` (19 fraction bits):
    n = bit length of s; x = softmax_reciprocal(s) (31 fraction bits); result(d) =
    min(rounding_divide_by_pot(saturating_rounding_doubling_high_mul(exponentials[d], x), n + 3), 255),
    less 128 for the signed type; where n + 3 > 31 it is 0.
    """

    exponentials: Array
    terms: Array


@functools.lru_cache(maxsize=256)
def softmax_tables(beta: float, scale: float) -> SoftmaxTables:
    """Return the tables for a beta and an input scale, both float32 values."""
    fraction_bits = 31 - _DIFFERENCE_INTEGER_BITS
    multiplier = fixed_point_multiplier(min(beta * scale * 2.0**fraction_bits, 2.0**31 - 1))
    radius = math.floor((2**_DIFFERENCE_INTEGER_BITS - 1) * 2.0 ** (fraction_bits - multiplier.exponent))
    differences = -np.arange(256, dtype=np.int64)
    kept = differences >= -radius
    scaled = multiply_by_quantized_multiplier(np.where(kept, differences, 0), multiplier.mantissa, multiplier.exponent)
    exponentials = np.where(kept, _exp_on_negative_values(scaled), 0).astype(np.int32)
    terms = rounding_divide_by_pot(exponentials, _SUM_INTEGER_BITS).astype(np.int32)
    exponentials.flags.writeable = terms.flags.writeable = False
    return SoftmaxTables(exponentials, terms)


def softmax_reciprocal(sums: Array) -> Array:
    """Return 1 / m of m = sums / 2^(bit length - 1), 1 <= m < 2, with 31 fraction bits; sums > 0 of at most 40 bits.

    Three Newton-Raphson steps in fixed point, as gemmlowp's one_over_one_plus_x_for_x_in_0_1.
    """
    wide = sums.astype(np.int64)
    lengths = bit_lengths(wide)
    above_one = (wide << np.maximum(32 - lengths, 0) >> np.maximum(lengths - 32, 0)) - 2**31
    # (above_one + 1.0) / 2, rounded; the estimates have two integer bits.
    half_denominator = (above_one + _ONE + 1) >> 1
    estimate = 1515870810 + saturating_rounding_doubling_high_mul(half_denominator, -1010580540)
    for _ in range(3):
        error = (1 << 29) - saturating_rounding_doubling_high_mul(half_denominator, estimate)
        estimate = estimate + _saturating_shift_left(saturating_rounding_doubling_high_mul(estimate, error), 2)
    return _saturating_shift_left(estimate, 1)


def bit_lengths(values: Array) -> Array:
    """Return the number of significant bits of integers 0 < value < 2^53, as int64."""
    lengths: Array = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return lengths


def _exp_on_negative_values(scaled: Array) -> Array:
    """Return exp(x), 31 fraction bits, of x <= 0 with 26 fraction bits (gemmlowp's algorithm).

    x is split into a part in [-1/4, 0) and the powers of two that its other bits stand for.
    """
    fraction_bits = 31 - _DIFFERENCE_INTEGER_BITS
    quarter = 1 << (fraction_bits - 2)
    within_quarter = (scaled & (quarter - 1)) - quarter
    result = _exp_within_quarter(within_quarter << _DIFFERENCE_INTEGER_BITS)
    remainder = within_quarter - scaled
    for exponent in range(-2, _DIFFERENCE_INTEGER_BITS):
        factor = math.floor(math.exp(-(2.0**exponent)) * 2**31 + 0.5)
        selected = (remainder & (1 << (fraction_bits + exponent))) != 0
        result = np.where(selected, saturating_rounding_doubling_high_mul(result, factor), result)
    exponential: Array = np.where(scaled == 0, _ONE, result)
    return exponential


def _exp_within_quarter(x: Array) -> Array:
    """Return exp(x) for -1/4 <= x < 0, both with 31 fraction bits: four Taylor terms around -1/8."""
    multiply = saturating_rounding_doubling_high_mul
    offset = x + (1 << 28)
    square = multiply(offset, offset)
    cube = multiply(square, offset)
    fourth = rounding_divide_by_pot(multiply(square, square), 2)
    higher = rounding_divide_by_pot(multiply(fourth + cube, 715827883) + square, 1)
    result: Array = 1895147668 + multiply(offset + higher, 1895147668)
    return result


def _saturating_shift_left(values: Array, bits: int) -> Array:
    shifted: Array = np.clip(values << bits, -(2**31), 2**31 - 1)
    return shifted


def _check(op: OperationView) -> FeatureLevel:
    check_fixed_quantization(op, scale=1 / 256, zero_point=0)
    dims = op.input("input").dimensions
    return FeatureLevel.HAL_1_0 if dims and len(dims) in (2, 4) else FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    dims = op.dimensions("input")
    op.axis("axis", len(dims), default=-1)
    if not op.float_value("beta") > 0:
        op.fail("beta", "must be > 0", op.float_value("beta"))
    return (dims,)


define(
    Definition(
        OperationCode.SOFTMAX,
        (
            Variant(
                (
                    Input("input", rank=UP_TO_4),
                    Input("beta", float_scalar),
                    Input("axis", INT32, optional=True, since=FeatureLevel.HAL_1_2),
                )
            ),
        ),
        (Output("output", rank=UP_TO_4),),
        FLOAT_AND_QUANT8,
        _prepare,
        _check,
        zero_sized_ok=True,
    )
)
