# SPDX-License-Identifier: Apache-2.0
"""Rounding of real values, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.operand import OperandType
from nn_runtime.quantization import lookup_table, quantize, round_half_away, with_signs_of

FLOAT_TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@FLOAT_TYPES
def test_ties_are_rounded_away_from_zero_and_their_neighbours_are_not(dtype: type[np.float32 | np.float64]) -> None:
    bits = np.finfo(dtype).nmant
    whole = [0, 1, 2, 3, 127, 128, 255, 1000, 2 ** (bits // 2), 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits + 1)]
    halves = np.array([dtype(one) + dtype(0.5) for one in whole], dtype)
    values = np.concatenate([halves, np.nextafter(halves, dtype(0)), np.nextafter(halves, dtype(np.inf)), whole])
    values = np.concatenate([values, -values]).astype(dtype)
    wanted = [math.copysign(math.floor(abs(Fraction(float(one))) + Fraction(1, 2)), one) for one in values]
    np.testing.assert_array_equal(round_half_away(values), np.array(wanted, dtype))


@FLOAT_TYPES
def test_what_is_no_number_stays(dtype: type[np.float32 | np.float64]) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, -0.25], dtype)
    rounded = round_half_away(values)
    np.testing.assert_array_equal(rounded, np.array([np.nan, np.inf, -np.inf, 0, 0], dtype))
    assert np.signbit(rounded[3:]).all()


@FLOAT_TYPES
@pytest.mark.parametrize("count", [1, 5])
def test_signs_are_copied(dtype: type[np.float32 | np.float64], count: int) -> None:
    values = np.array([1.5, -1.5, 0.0, -0.0, -np.inf], dtype)
    magnitudes = np.arange(count).astype(dtype)
    signed = with_signs_of(values, magnitudes)
    np.testing.assert_array_equal(np.signbit(signed), [False, True, False, True, True])
    np.testing.assert_array_equal(np.abs(signed), np.broadcast_to(magnitudes, 5))


def test_a_number_of_no_dimensions_is_quantised() -> None:
    operand = OperandType(OperandCode.TENSOR_QUANT8_ASYMM, (1,), 0.5, 3)
    quantized = quantize(np.array(1.26, np.float32), operand)
    assert quantized.shape == ()
    assert quantized == 6


def test_a_table_of_results_that_float32_does_not_hold() -> None:
    """The ends of the range for what is too large, the zero point for what is no number; no warning."""
    code = OperandCode.TENSOR_QUANT8_ASYMM
    source, output = OperandType(code, (), 1e37, 100), OperandType(code, (), 1e-3, 7)
    table = lookup_table(lambda real: real * real * np.sign(real), source, output)
    assert table[99:102].tolist() == [0, 7, 255]
    assert lookup_table(lambda real: real * real - real * real, source, output)[[0, 100, 200]].tolist() == [7, 7, 7]
