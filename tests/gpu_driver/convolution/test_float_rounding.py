# SPDX-License-Identifier: Apache-2.0
"""Requantisation by floats: what it claims to be exact, with whole-number arithmetic for all sums that can occur."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.convolution.float_rounding import FloatScaling, FloatSearch
from nn_runtime.quantization import fixed_point_multipliers, multiply_by_quantized_multiplier

if TYPE_CHECKING:
    from nn_runtime.operand import Array

GREATEST = 60_000


def search(reals: Array, zero_point: int, bounds: tuple[int, int], greatest: int = GREATEST) -> FloatScaling:
    mantissas, exponents = fixed_point_multipliers(reals)
    sums = np.full(len(reals), -greatest), np.full(len(reals), greatest)
    return FloatSearch(mantissas, exponents, sums, zero_point, bounds).result()


def computed(found: FloatScaling, channel: int, x: Array) -> Array:
    """Return what kernels make of sums, in whole numbers: all factors are multiples of 2^-80."""
    numbers = found.factors[channel], found.rests[channel], found.offsets[channel]
    factor, rest, offset = (int(Fraction(float(value)) * 2**80) for value in numbers)
    addends = np.where((found.centred or rest != 0) & (x < 0), -1, 1).astype(object) * offset
    if rest:
        addends = np.frompyfunc(cut_to_float32, 1, 1)(x.astype(object) * rest + addends)
    products = x.astype(object) * factor + addends
    cut = np.where(products < 0, -(-products // 2**80), products // 2**80)
    as_integers: Array = cut.astype(np.int64)
    return as_integers


def cut_to_float32(number: int) -> int:
    """Return the first 24 binary digits, and zeros behind them."""
    digits = max(0, abs(number).bit_length() - 24)
    cut = abs(number) >> digits << digits
    return cut if number > 0 else -cut


def check_exact_channels(found: FloatScaling, reals: Array, zero_point: int, bounds: tuple[int, int]) -> None:
    """Check the results of every sum up to GREATEST in magnitude."""
    mantissas, exponents = fixed_point_multipliers(reals)
    sums = np.arange(-GREATEST, GREATEST + 1)
    for channel in np.flatnonzero(found.exact):
        right = multiply_by_quantized_multiplier(sums, int(mantissas[channel]), int(exponents[channel])) + zero_point
        ours = computed(found, channel, sums) + zero_point
        np.testing.assert_array_equal(np.clip(ours, *bounds), np.clip(right, *bounds))


BOUNDS = pytest.mark.parametrize(
    ("zero_point", "bounds"), [(-128, (-128, 127)), (3, (-128, 127)), (0, (0, 255)), (120, (120, 200))]
)


@BOUNDS
def test_exact_channels_are_right_for_every_sum(zero_point: int, bounds: tuple[int, int]) -> None:
    rng = np.random.default_rng(zero_point + 500)
    reals = np.concatenate([2.0 ** rng.uniform(-11, 0, 12), [0.25, 0.0, 2.0**-9, 0.3]])
    found = search(reals, zero_point, bounds)
    check_exact_channels(found, reals, zero_point, bounds)
    assert found.exact[:12].all()


@BOUNDS
def test_two_floats_for_a_factor_are_right_for_every_sum(
    zero_point: int, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("_nearest", "_neighbours"):
        monkeypatch.setattr(FloatSearch, one, lambda *_: ())
    reals = 2.0 ** np.random.default_rng(zero_point + 501).uniform(-15, 0, 16)
    found = search(reals, zero_point, bounds)
    check_exact_channels(found, reals, zero_point, bounds)
    assert found.exact.all()
    assert found.rests.any()


def test_small_factors_take_two_floats() -> None:
    """255 steps of 2^-13 leave float32 less than 2^-21 to each side: one factor of 24 digits misses most of them."""
    reals = np.random.default_rng(9).uniform(0.5, 1.0, 100) * 2.0**-12
    found = search(reals, 0, (-128, 127), 1 << 22)
    assert found.exact.all()
    assert (found.rests != 0).any()


def test_channels_of_one_result_need_no_steps() -> None:
    """As channels have that training left without use: tiny weights, and a bias beyond what floats hold."""
    mantissas, exponents = fixed_point_multipliers(np.full(3, 3.3e-7))
    least = np.array([100_000_000, -90_000, 100_000_000])
    sums = least, least + np.array([100_000, 180_000, 10_000_000])
    found = FloatSearch(mantissas, exponents, sums, 0, (-128, 127)).result()
    assert found.exact.tolist() == [True, True, False]
    assert found.offsets[:2].tolist() == [33.5, 0.5]
    assert not found.factors[:2].any()


def test_sums_beyond_the_last_step_may_be_no_floats() -> None:
    found = search(np.array([3e-4, 3e-6]), 0, (-128, 127), 1 << 27)
    assert found.exact.tolist() == [True, False]


def test_what_is_shifted_left_is_left_to_integers() -> None:
    assert not search(np.array([1.0, 3.7]), 0, (-128, 127)).exact.any()


def test_steps_that_floats_cannot_tell_apart_are_found() -> None:
    """Sums of 2^31 have more digits than float32: the steps of a small factor cannot all begin where they should."""
    rng = np.random.default_rng(4)
    reals = rng.uniform(0.5, 1.0, 64) * 2.0**-22
    assert not search(reals, 0, (0, 255), 1 << 31).exact.all()
