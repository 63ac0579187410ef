# SPDX-License-Identifier: Apache-2.0
"""quant.h, one value at a time, beside gemmlowp's definition in integers of any length."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

import kernels_cl
from gpu_driver.discovery.platforms import find_devices
from gpu_driver.discovery.trial import run_once

if TYPE_CHECKING:
    from gpu_driver.discovery.platforms import FoundDevice

USABLE = [device for device in find_devices() if device.usable]
SOURCE = (
    kernels_cl.source("common/quant.h")
    + """
kernel void multiply(global const int *x, global const int *multiplier, global const int *shift, global int *y)
{
    const int i = (int)get_global_id(0);
    y[i] = multiply_by_quantized_multiplier(x[i], multiplier[i], shift[i]);
}

AtOnce at_once(int bias, int multiplier, int shift, int zero_out, int rounds_once)
{
    return (AtOnce){at_once_added(bias, multiplier, shift, zero_out, rounds_once), multiplier, -shift - 1};
}

kernel void scale(global const int *x, global const int *multiplier, global const int *shift, global const int *zero,
    global const int *bias, global int3 *y)
{
    const int i = (int)get_global_id(0);
    const int any = scale_at_once(x[i] + bias[i], at_once(0, multiplier[i], shift[i], zero[i], 0));
    const int down = scale_down_at_once(x[i], at_once(bias[i], multiplier[i], shift[i], zero[i], 0));
    y[i] = (int3)(any, down, scale_down_at_once(x[i], at_once(bias[i], multiplier[i], shift[i], zero[i], 1)));
}
"""
)
LEAST, GREATEST = -(2**31), 2**31 - 1
MULTIPLIERS = (0, 2**30, 2**30 + 1, 1_518_500_250, GREATEST - 1, GREATEST)
SHIFTS = range(-31, 32)


def rescaled(x: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier of TFLite with the two roundings of gemmlowp's fixedpoint.h."""
    scaled = (x << max(shift, 0)) & 0xFFFFFFFF
    scaled -= 2**32 * (scaled > GREATEST)
    product = scaled * multiplier
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    right = max(-shift, 0)
    mask = (1 << right) - 1
    remainder, threshold = high & mask, mask // 2 + (high < 0)
    return (high >> right) + (remainder > threshold)


def near_ties(generator: random.Random) -> tuple[int, int, int]:
    """A value whose product is about half of a unit of the result, above or below a whole one."""
    multiplier, shift = generator.randint(2**30, GREATEST), generator.randint(-31, -1)
    most = GREATEST >> (1 - shift)
    halves = 2 * generator.randint(-most - 1, most) + 1
    x = (halves << (30 - shift)) // multiplier + generator.randint(-1, 1)
    return min(max(x, LEAST), GREATEST), multiplier, shift


@pytest.mark.parametrize("found", USABLE, ids=lambda found: found.name)
def test_values_are_rescaled_as_gemmlowp_does(found: FoundDevice) -> None:
    generator = random.Random(1)
    edges = {sign * (1 << bit) + step for bit in range(32) for sign in (-1, 1) for step in (-1, 0, 1)}
    cases = [
        (x, multiplier, shift)
        for x in sorted(edges)
        if LEAST <= x <= GREATEST
        for multiplier in MULTIPLIERS
        for shift in SHIFTS
    ]
    cases += [near_ties(generator) for _ in range(50_000)]
    cases += [
        (generator.randint(LEAST, GREATEST), generator.randint(2**30, GREATEST), generator.choice(SHIFTS))
        for _ in range(50_000)
    ]
    arguments = [np.array(column, np.int32) for column in zip(*cases, strict=True)]
    results = np.empty(len(cases), np.int32)
    context = cl.Context([found.device])
    run_once(context, SOURCE, "multiply", (len(cases),), (1,), arguments, [results])
    np.testing.assert_array_equal(results, [rescaled(*case) for case in cases])


@pytest.mark.parametrize("found", USABLE, ids=lambda found: found.name)
def test_small_sums_are_rescaled_at_once(found: FoundDevice) -> None:
    """Any sum; where negative results do not matter; and with one rounding."""
    generator = random.Random(2)
    cases = []
    while len(cases) < 50_000:
        x, multiplier, shift = near_ties(generator)
        zero, bias = generator.randint(-128, 255), generator.randint(-(2**20), 2**20)
        if abs(x + bias) + abs((zero << -shift) + (1 << (-shift - 1))) < 2**31 and LEAST <= x <= GREATEST:
            cases.append((x, multiplier, shift, zero, bias))
    arguments = [np.array(column, np.int32) for column in zip(*cases, strict=True)]
    results = np.empty((len(cases), 4), np.int32)
    context = cl.Context([found.device])
    run_once(context, SOURCE, "scale", (len(cases),), (1,), arguments, [results])
    wanted = np.array([rescaled(x + bias, *scale) + zero for x, *scale, zero, bias in cases])
    zeros = np.array([zero for *_, zero, _ in cases])
    once = [((x + bias) * m + (1 << (30 - shift)) >> 31 - shift) + zero for x, m, shift, zero, bias in cases]
    np.testing.assert_array_equal(results[:, 0], wanted)
    np.testing.assert_array_equal(np.maximum(results[:, 1], zeros), np.maximum(wanted, zeros))
    np.testing.assert_array_equal(results[:, 2], once)
