# SPDX-License-Identifier: Apache-2.0
"""Products of 16-bit fixed-point numbers, and their sigmoid and hyperbolic tangent as tables of every code.

The tables follow gemmlowp's algorithm for 16 bits, which the quantised LSTM kernels of TFLite use: exp of a negative
number, then a quotient by three Newton-Raphson steps. A format with n integer bits has 15 - n fraction bits. A table is
int16 [65536], indexed by the code's uint16.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.quantization import rounding_divide_by_pot

if TYPE_CHECKING:
    from nn_runtime.operand import Array

_ONE = 2**15 - 1
"""1.0 in the format without integer bits."""
_LOGISTIC_INTEGER_BITS = 3
_GREATEST_EXP_EXPONENT = 5
_MIN, _MAX = -(2**15), 2**15 - 1


@functools.cache
def logistic_table() -> Array:
    """Return 1 / (1 + exp(-x)), 15 fraction bits, of every x with 3 integer bits."""
    x = _codes()
    positive = _reciprocal_estimate(_exp_on_negative_values(-np.abs(x), _LOGISTIC_INTEGER_BITS))
    positive = _saturate(positive << 1)
    result = np.where(x > 0, positive, _ONE - positive)
    result[x == 0] = 1 << 14
    return _table(result)


@functools.cache
def tanh_table(integer_bits: int) -> Array:
    """Return tanh(x), 15 fraction bits, of every x with 0 to 6 integer bits."""
    x = _codes()
    # exp(-2 |x|): the same code with one integer bit more.
    estimate = _reciprocal_estimate(_exp_on_negative_values(-np.abs(x), integer_bits + 1))
    magnitude = _saturate((estimate - (1 << 13)) << 2)
    return _table(np.where(x == 0, 0, np.where(x > 0, magnitude, -magnitude)))


def high_product(values: Array, factor: Array | int) -> Array:
    """Return values * factor / 2^15 of 16-bit numbers, not both -2^15; rounded, ties towards plus infinity."""
    product = np.multiply(values, factor, dtype=np.int64)
    product += 1 << 14
    product >>= 15
    return product


def _codes() -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)


def _table(values: Array) -> Array:
    table: Array = values.astype(np.int16)
    table.flags.writeable = False
    return table


def _exp_on_negative_values(x: Array, integer_bits: int) -> Array:
    """Return exp(x), 15 fraction bits, of x <= 0: x is split into a part in [-1/4, 0) and powers of two."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    within_quarter = (x & (quarter - 1)) - quarter
    result = _exp_within_quarter(within_quarter << integer_bits)
    remainder = within_quarter - x
    for exponent in range(-2, min(integer_bits, _GREATEST_EXP_EXPONENT)):
        selected = (remainder & (1 << (fraction_bits + exponent))) != 0
        result = np.where(selected, high_product(result, _constant(math.exp(-(2.0**exponent)))), result)
    if integer_bits > _GREATEST_EXP_EXPONENT:
        result = np.where(x < -(32 << fraction_bits), 0, result)
    exponential: Array = np.where(x == 0, _ONE, result)
    return exponential


def _exp_within_quarter(x: Array) -> Array:
    """Return exp(x) for -1/4 <= x < 0, both with 15 fraction bits: four Taylor terms around -1/8."""
    offset = x + (1 << 12)
    square = high_product(offset, offset)
    cube = high_product(square, offset)
    fourth = rounding_divide_by_pot(high_product(square, square), 2)
    higher = rounding_divide_by_pot(high_product(fourth + cube, _constant(1 / 3)) + square, 1)
    centre = _constant(math.exp(-1 / 8))
    return _saturate(centre + high_product(offset + higher, centre))


def _reciprocal_estimate(x: Array) -> Array:
    """Return 2 / (1 + x), 13 fraction bits, for 0 <= x <= 1 with 15 fraction bits."""
    half_denominator = (x + _ONE + 1) >> 1
    estimate = _constant(48 / 17, 2) + high_product(half_denominator, _constant(-32 / 17, 2))
    for _ in range(3):
        error = (1 << 13) - high_product(half_denominator, estimate)
        estimate = estimate + _saturate(high_product(estimate, error) << 2)
    return estimate


def _constant(real: float, integer_bits: int = 0) -> int:
    """Return a constant as the reference derives it: rounded to 31 bits and a sign, then to 15."""
    return (math.floor(real * 2.0 ** (31 - integer_bits) + 0.5) + (1 << 15)) >> 16


def _saturate(values: Array) -> Array:
    saturated: Array = np.clip(values, _MIN, _MAX)
    return saturated
