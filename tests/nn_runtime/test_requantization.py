# SPDX-License-Identifier: Apache-2.0
"""The vectorised requantisation against the references' integer steps, one number at a time."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime import requantization_search
from nn_runtime.codes import FuseCode, OperandCode
from nn_runtime.operand import ChannelQuant, OperandType
from nn_runtime.quantization import (
    activation_range_quantized,
    convolution_multipliers,
    fixed_point_multiplier,
    fixed_point_multipliers,
)
from nn_runtime.requantization import Requantization, _InFloat32, requantize

SIGNED, UNSIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.TENSOR_QUANT8_ASYMM


def by_steps(value: int, mantissa: int, exponent: int) -> int:
    """SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT, in exact integers (no overflow here)."""
    product = (value << max(exponent, 0)) * mantissa
    total = product + (2**30 if product >= 0 else 1 - 2**30)
    high = total // 2**31 if total >= 0 else -(-total // 2**31)
    shift = max(-exponent, 0)
    remainder, threshold = high % 2**shift, (2**shift - 1) // 2 + (high < 0)
    return high // 2**shift + (remainder > threshold)


def at_once(value: int, mantissa: int, exponent: int) -> int:
    """LiteRT's single rounding: one half added, then one shift."""
    return (value * mantissa + (1 << (30 - exponent))) >> (31 - exponent)


def near_ties(mantissa: int, exponent: int) -> list[int]:
    """Sums whose results lie at and beside every rounding boundary of the 8-bit range, and a few far outside."""
    ties = np.floor((np.arange(-260, 260) + 0.5) * 2.0 ** (31 - exponent) / mantissa).astype(np.int64)
    around = (ties[:, np.newaxis] + np.arange(-2, 3)).reshape(-1)
    limit = 2**31 >> max(exponent, 0)
    return [*np.clip(around, -limit + 1, limit - 1).tolist(), -limit + 1, limit - 1, -1, 0, 1]


@pytest.mark.parametrize("mantissa", [2**30, 2**30 + 1, 3 * 2**29, 1_234_567_891, 2**31 - 1])
@pytest.mark.parametrize("exponent", [3, 1, 0, -1, -2, -5, -11, -12, -13, -20])
@pytest.mark.parametrize(
    ("code", "zero_point", "activation"),
    [(UNSIGNED, 0, 1), (UNSIGNED, 128, 0), (UNSIGNED, 255, 3), (SIGNED, -128, 0), (SIGNED, 5, 2), (SIGNED, 5, 0)],
)
@pytest.mark.parametrize("once", [False, True])
def test_requantize_has_the_bits_of_the_integer_steps(
    mantissa: int, exponent: int, code: OperandCode, zero_point: int, activation: int, once: bool
) -> None:
    output = OperandType(code, (), 0.0625, zero_point)
    low, high = activation_range_quantized(FuseCode(activation), output)
    sums = near_ties(mantissa, exponent)
    multiply = at_once if once else by_steps
    wanted = [min(max(multiply(value, mantissa, exponent) + zero_point, low), high) for value in sums]
    bias = np.array([-1000], np.int32)
    values = np.array(sums, np.float64)[:, np.newaxis] - bias
    multipliers = np.array([mantissa], np.int32), np.array([exponent], np.int32)
    got = requantize(values, bias, multipliers, output, FuseCode(activation), once=once)
    assert got.reshape(-1).tolist() == wanted


@pytest.mark.parametrize(
    ("code", "zero_point", "activation"),
    [(UNSIGNED, 0, 3), (UNSIGNED, 128, 0), (UNSIGNED, 255, 0), (SIGNED, -128, 3), (SIGNED, 5, 0), (SIGNED, 5, 1)],
)
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("exponent", [0, -1, -4, -7, -9, -16])
@pytest.mark.parametrize("bias", [12_345, 25_000_000, -155_000_000])
def test_float32_sums_give_the_bits_of_the_integer_steps(
    code: OperandCode, zero_point: int, activation: int, once: bool, exponent: int, bias: int
) -> None:
    """With random factors, of which float32 serves some and float64 the others, next to every rounding boundary.

    A large bias leaves some or all of the boundaries out of reach of the sums.
    """
    channels = 24
    generator = np.random.default_rng(7)
    mantissas = generator.integers(2**30, 2**31, channels).astype(np.int32)
    exponents = np.full(channels, exponent, np.int32)
    output = OperandType(code, (), 0.0235, zero_point)
    low, high = activation_range_quantized(FuseCode(activation), output)
    sums = np.array([near_ties(int(mantissa), exponent) for mantissa in mantissas]).T
    sums = np.clip(sums, bias - 2**24, bias + 2**24)
    multiply = at_once if once else by_steps
    wanted = [
        [
            min(max(multiply(int(one), int(m), exponent) + zero_point, low), high)
            for one, m in zip(row, mantissas, strict=True)
        ]
        for row in sums
    ]
    values, biases = (sums - bias).astype(np.float32), np.full(channels, bias, np.int32)
    assert np.array_equal(values, sums - bias)
    got = requantize(values, biases, (mantissas, exponents), output, FuseCode(activation), once=once)
    np.testing.assert_array_equal(got, wanted)


def test_requantize_keeps_channels_apart() -> None:
    channels, rows = 37, 1000  # more than one cache-sized piece
    generator = np.random.default_rng(1)
    mantissas = generator.integers(2**30, 2**31, channels).astype(np.int32)
    exponents = generator.integers(-20, 3, channels).astype(np.int32)
    bias = generator.integers(-500, 500, channels).astype(np.int32)
    values = generator.integers(-(2**20), 2**20, (rows, channels)).astype(np.float32)
    output = OperandType(SIGNED, (), 1.0, 3)
    got = requantize(values, bias, (mantissas, exponents), output, FuseCode.NONE)
    for row, channel in ((0, 0), (442, 31), (443, 0), (999, 36), (500, 17)):
        total = int(values[row, channel]) + int(bias[channel])
        wanted = by_steps(total, int(mantissas[channel]), int(exponents[channel])) + 3
        assert got[row, channel] == min(max(wanted, -128), 127)


def test_biases_of_more_than_32_bits_keep_channels_apart() -> None:
    """A folded zero point may take a bias there; these would share a search with half of the other's multiplier."""
    mantissa, exponents = 1_500_000_000, (-9, -8)
    biases = np.array([200 << 24, (200 - 256) << 24], np.int64)
    output = OperandType(UNSIGNED, (), 1.0, 0)
    sums = np.array([near_ties(mantissa, exponent)[1300:2500] for exponent in exponents]).T
    sums = sums[np.all((sums >= 0) & (sums < 2**22), axis=1)]
    assert len(sums) > 500
    got = requantize(
        sums - biases, biases, (np.full(2, mantissa, np.int32), np.array(exponents, np.int32)), output, FuseCode.NONE
    )
    wanted = [
        [min(max(by_steps(int(one), mantissa, exponent), 0), 255) for one, exponent in zip(row, exponents, strict=True)]
        for row in sums
    ]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("mantissa", "exponent", "zero_point"),
    [(1_260_000_667, -11, 3), (1_893_077_606, -11, 3), (1_302_070_004, -11, -20), (1_399_459_328, -10, -128)],
)
def test_sums_that_float32_takes_to_the_next_code_are_corrected(
    mantissa: int, exponent: int, zero_point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first arithmetic alone, in which each of these multipliers is wrong for one sum or more."""
    for name, only_one in (("_FACTORS", (0,)), ("_SHIFTS", (0,)), ("_NUDGES", (4,)), ("_FEW_NUDGES", (4,))):
        monkeypatch.setattr(requantization_search, name, only_one)
    monkeypatch.setattr(requantization_search, "_FEW_FACTORS", (0,))
    output = OperandType(SIGNED, (), 1.0, zero_point)
    sums = np.array(near_ties(mantissa, exponent))
    sums = sums[np.abs(sums) < 2**24]
    values = np.stack([sums, sums], axis=1).astype(np.float32)
    multipliers = np.full(2, mantissa, np.int32), np.full(2, exponent, np.int32)
    ready = Requantization(np.zeros(2, np.int32), multipliers, output, FuseCode.NONE)
    got = ready(values)
    wanted = [min(max(by_steps(int(one), mantissa, exponent) + zero_point, -128), 127) for one in sums]
    np.testing.assert_array_equal(got, np.stack([wanted, wanted], axis=1))
    ((arithmetic, _channels),) = ready._of_float32
    assert isinstance(arithmetic, _InFloat32)
    assert arithmetic._corrections


def test_sums_beyond_what_float32_holds_are_not_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A correction of 2^24 + 1 would be one of 2^24."""
    only_one = {"_SHIFTS": (0,), "_FEW_FACTORS": (0,), "_FEW_NUDGES": (-1000,)}  # which is wrong there
    for name, values in only_one.items():
        monkeypatch.setattr(requantization_search, name, values)
    mantissa, exponent, bias = 1_098_208_102, -10, -16_762_199
    multipliers = np.array([mantissa], np.int32), np.array([exponent], np.int32)
    sums = np.arange(2**24 - 5, 2**24 + 1, dtype=np.float32)[:, np.newaxis]
    output = OperandType(SIGNED, (), 1.0, -128)
    got = requantize(sums.copy(), np.array([bias], np.int32), multipliers, output, FuseCode.NONE)
    wanted = [max(by_steps(int(value) + bias, mantissa, exponent) - 128, -128) for value in sums[:, 0]]
    assert got[:, 0].tolist() == wanted


def test_sums_out_of_reach_need_not_be_right() -> None:
    """float32 serves a channel of few possible sums that it does not serve for all."""
    mantissa, exponent, bias, reach = 1_369_916_726, -17, 93_790, 500_000
    output = OperandType(SIGNED, (), 1.0, -128)
    multipliers = np.array([mantissa], np.int32), np.array([exponent], np.int32)
    values = np.arange(-reach, reach + 1, 7, dtype=np.float32)[:, np.newaxis]
    wanted = [max(by_steps(int(value) + bias, mantissa, exponent) - 128, -128) for value in values[:, 0]]
    ready = Requantization(np.array([bias], np.int32), multipliers, output, FuseCode.NONE, reach=np.array([reach]))
    assert ready(values)[:, 0].tolist() == wanted
    ((arithmetic, _channels),) = ready._of_float32
    assert isinstance(arithmetic, _InFloat32)


def test_channels_of_one_multiplier_are_corrected_where_their_sums_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both share a search, whose wrong sums the second, of few possible sums, does not have."""
    for name in ("_FACTORS", "_NUDGES"):
        monkeypatch.setattr(requantization_search, name, (0,) if name == "_FACTORS" else (4,))
    mantissa, exponent = 1_893_077_606, -11
    output, reach = OperandType(SIGNED, (), 1.0, 3), np.array([300_000, 50])
    multipliers = np.full(2, mantissa, np.int32), np.full(2, exponent, np.int32)
    ready = Requantization(np.zeros(2, np.int32), multipliers, output, FuseCode.NONE, reach=reach)
    sums = np.array([one for one in near_ties(mantissa, exponent) if abs(one) <= 300_000])
    values = np.stack([sums, sums % 50], axis=1)
    wanted = [[min(max(by_steps(int(v), mantissa, exponent) + 3, -128), 127) for v in row] for row in values]
    np.testing.assert_array_equal(ready(values.astype(np.float32)), wanted)
    ((arithmetic, _channels),) = ready._of_float32
    assert isinstance(arithmetic, _InFloat32)
    assert [len(arithmetic._corrections[channel]) > 0 for channel in range(2)] == [True, False]


def test_multipliers_of_many_are_those_of_each() -> None:
    reals = [0.0, 1.0, 0.5, 2.0**-31, 2.0**-33, 2.0**31, 1 - 2.0**-40, 2.0**-31 * (1 - 2.0**-50), 0.0037, 3e-7, 123.4]
    mantissas, exponents = fixed_point_multipliers(reals)
    for real, mantissa, exponent in zip(reals, mantissas, exponents, strict=True):
        single = fixed_point_multiplier(real)
        assert (single.mantissa, single.exponent) == (mantissa, exponent)


def test_convolution_multipliers_round_the_product_of_scales_only_per_tensor() -> None:
    # In float32 the product of 1 + 2^-12 with itself loses its last term 2^-24.
    scale = 1 + 2.0**-12
    source, output = OperandType(UNSIGNED, (), scale, 0), OperandType(UNSIGNED, (), 4.0, 0)
    per_tensor = convolution_multipliers(source, OperandType(UNSIGNED, (), scale, 0), output)
    channels = ChannelQuant((scale, 2.0), 0)
    weights = OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 1, 1, 1), channel_quant=channels)
    per_channel = convolution_multipliers(source, weights, output)
    assert per_tensor[0].tolist() == [2**30 + 2**19]
    assert per_channel[0].tolist() == [2**30 + 2**19 + 2**6, 2**30 + 2**18]
    assert per_channel[1].tolist() == [-1, 0]
