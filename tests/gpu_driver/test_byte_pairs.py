# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on bytes by float32, beside what it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_driver.byte_pairs import Bytes, by_floats
from nn_runtime.codes import OperationCode
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier
from nn_runtime.quantization import multiply_by_quantized_multiplier

ADD, SUB, MUL = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("code", [ADD, SUB, MUL], ids=lambda code: code.name)
def test_floats_that_are_found_are_near_the_specified_results(code: OperationCode, seed: int) -> None:
    """In float64, which decides all but near ties as float32 does."""
    rng = np.random.default_rng(seed)
    scales = [float(np.float32(scale)) for scale in rng.uniform(0.005, 0.1, 3)]
    if code == MUL:
        scales[2] = scales[0] * scales[1] * float(rng.uniform(5, 80))
    first, second, output = (
        Bytes(scale, int(zero), -128, 127) for scale, zero in zip(scales, rng.integers(-128, 128, 3), strict=True)
    )
    found = by_floats(code, first, second, output)
    if found is None:
        pytest.fail("no factors found")
    a, b = first.values[:, np.newaxis] - first.zero_point, second.values - second.zero_point
    if code == MUL:
        factor = mul_multiplier(*scales)
        right = multiply_by_quantized_multiplier(a * b, factor.mantissa, factor.exponent)
        products = a * b * found[0]
        got = np.trunc(products + np.where(products < 0, found[1], found[2]))
    else:
        factors = add_parameters(*scales)
        x, y = (
            multiply_by_quantized_multiplier(values << ADD_LEFT_SHIFT, one.mantissa, one.exponent)
            for values, one in ((a, factors.input0), (b, factors.input1))
        )
        total = x + y if code == ADD else x - y
        right = multiply_by_quantized_multiplier(total, factors.output.mantissa, factors.output.exponent)
        got = np.rint(a * found[0] + (second.values * found[1] + found[2])) - output.zero_point
    low, high = -128 - output.zero_point, 127 - output.zero_point
    assert np.count_nonzero(np.clip(got, low, high) != np.clip(right, low, high)) <= 2


@pytest.mark.parametrize("exponent", range(4, 10))
def test_products_whose_factor_is_a_power_of_two(exponent: int) -> None:
    """They are rounded up from a little less than a half, but negative ones only from more than a half."""
    first, second = Bytes(0.05, -3, -128, 127), Bytes(2.0**-exponent, -128, -128, 127)
    found = by_floats(MUL, first, second, first)
    if found is None:
        pytest.fail("no factors found")
    factor, below, above = found
    products = (first.values[:, np.newaxis] + 3) * (second.values + 128)
    one = mul_multiplier(0.05, 2.0**-exponent, 0.05)
    right = np.clip(multiply_by_quantized_multiplier(products, one.mantissa, one.exponent), -125, 130)
    got = np.trunc(products * factor + np.where(products < 0, below, above))
    np.testing.assert_array_equal(np.clip(got, -125, 130), right)
