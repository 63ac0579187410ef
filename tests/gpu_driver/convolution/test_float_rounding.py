# SPDX-License-Identifier: Apache-2.0
"""Requantisation by floats: what it claims to be exact, with whole-number arithmetic for all sums that can occur."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.convolution.float_rounding import FloatScaling, FloatSearch, addition_by_floats
from nn_runtime.codes import OperandCode
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters
from nn_runtime.quantization import fixed_point_multipliers, multiply_by_quantized_multiplier

if TYPE_CHECKING:
    from nn_runtime.operand import Array

GREATEST = 60_000


def search(reals: Array, zero_point: int, bounds: tuple[int, int], greatest: int = GREATEST) -> FloatScaling:
    mantissas, exponents = fixed_point_multipliers(reals)
    sums = np.full(len(reals), -greatest), np.full(len(reals), greatest)
    return FloatSearch(mantissas, exponents, sums, zero_point, bounds).result()


def cut_exactly(x: Array, factor: np.float32, offset: np.float32, *, centred: bool) -> Array:
    """Return x * factor + offset cut towards zero, in whole numbers: both factors are multiples of 2^-60."""
    one, other = (int(Fraction(float(value)) * 2**60) for value in (factor, offset))
    products = x.astype(object) * one + np.where(centred & (x < 0), -other, other).astype(object)
    cut = np.where(products < 0, -(-products // 2**60), products // 2**60)
    as_integers: Array = cut.astype(np.int64)
    return as_integers


@pytest.mark.parametrize(
    ("zero_point", "bounds"), [(-128, (-128, 127)), (3, (-128, 127)), (0, (0, 255)), (120, (120, 200))]
)
def test_exact_channels_are_right_for_every_sum(zero_point: int, bounds: tuple[int, int]) -> None:
    rng = np.random.default_rng(zero_point + 500)
    reals = np.concatenate([2.0 ** rng.uniform(-11, -1, 12), [0.25, 0.0, 2.0**-9, 0.3]])
    mantissas, exponents = fixed_point_multipliers(reals)
    found = search(reals, zero_point, bounds)
    sums = np.arange(-GREATEST, GREATEST + 1)
    for channel in np.flatnonzero(found.exact):
        right = multiply_by_quantized_multiplier(sums, int(mantissas[channel]), int(exponents[channel])) + zero_point
        ours = cut_exactly(sums, found.factors[channel], found.offsets[channel], centred=found.centred) + zero_point
        np.testing.assert_array_equal(np.clip(ours, *bounds), np.clip(right, *bounds))
    assert found.exact[:12].sum() >= 10


def test_what_is_shifted_left_is_left_to_integers() -> None:
    assert not search(np.array([1.0, 3.7]), 0, (-128, 127)).exact.any()


def test_steps_that_floats_cannot_tell_apart_are_found() -> None:
    """Sums of 2^31 have more digits than float32: the steps of a small factor cannot all begin where they should."""
    rng = np.random.default_rng(4)
    reals = rng.uniform(0.5, 1.0, 64) * 2.0**-22
    assert not search(reals, 0, (0, 255), 1 << 31).exact.all()


@dataclass(frozen=True)
class Bytes:
    """As much of an operand as the addition looks at."""

    scale: float
    zero_point: int
    type: int = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def test_addition_is_right_for_all_pairs_of_bytes() -> None:
    rng = np.random.default_rng(8)
    values = np.arange(-128, 128)
    found = 0
    for _ in range(20):
        scales = np.float32(rng.uniform(0.02, 0.3, 3)).tolist()
        zeros = rng.integers(-40, 40, 3).tolist()
        one, two, out = (Bytes(scale, zero) for scale, zero in zip(scales, zeros, strict=True))
        fields = addition_by_floats(one, two, out)  # type: ignore[arg-type]
        if not fields:
            continue
        found += 1
        parameters = add_parameters(*scales)
        addends = [
            multiply_by_quantized_multiplier(centred << ADD_LEFT_SHIFT, factor.mantissa, factor.exponent)
            for centred, factor in ((values - zeros[0], parameters.input0), (values - zeros[1], parameters.input1))
        ]
        total = addends[0][:, np.newaxis] + addends[1]
        right = multiply_by_quantized_multiplier(total, parameters.output.mantissa, parameters.output.exponent)
        factors = [np.longdouble(fields[name]) for name in ("factor_product", "factor_residual", "offset_sum")]
        inner = (values * factors[1] + factors[2]).astype(np.float32)
        ours = np.rint(((values - zeros[0])[:, np.newaxis] * factors[0] + inner).astype(np.float32))
        np.testing.assert_array_equal(np.clip(ours, -128, 127), np.clip(right + zeros[2], -128, 127))
    assert found >= 10
