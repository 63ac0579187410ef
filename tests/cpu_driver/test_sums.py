# SPDX-License-Identifier: Apache-2.0
"""8-bit ADD and SUB of tensors large enough for the fast arithmetic: every pair of codes against integer steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nn_runtime as nn

UNSIGNED, SIGNED = nn.OperandCode.TENSOR_QUANT8_ASYMM, nn.OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def fixed_point(real: float) -> tuple[int, int]:
    fraction, exponent = math.frexp(real)
    return round(fraction * 2**31), exponent


def scaled(value: int, multiplier: tuple[int, int]) -> int:
    """TFLite's MultiplyByQuantizedMultiplier for a multiplier below 1, in exact integers."""
    mantissa, exponent = multiplier
    high = (value * mantissa + 2**30) >> 31
    half = (1 << -exponent) >> 1
    return (high + half) >> -exponent if high >= 0 else -((-high + half) >> -exponent)


def specified(first: int, second: int, scales: tuple[float, ...], points: tuple[int, ...], sign: int) -> int:
    """The reference kernel: both centred inputs shifted left by 20 and brought to twice the larger scale."""
    twice = 2.0 * max(scales[:2])
    one = scaled((first - points[0]) << 20, fixed_point(scales[0] / twice))
    two = scaled((second - points[1]) << 20, fixed_point(scales[1] / twice))
    return scaled(one + sign * two, fixed_point(twice / (2.0**20 * scales[2]))) + points[2]


@pytest.mark.parametrize("operation", [nn.OperationCode.ADD, nn.OperationCode.SUB])
@pytest.mark.parametrize(
    ("code", "scales", "points"),
    [
        (UNSIGNED, (0.25, 0.25, 0.5), (128, 128, 128)),  # every other sum is a tie
        (UNSIGNED, (0.1875, 0.0625, 0.25), (0, 255, 17)),
        (SIGNED, (0.2275, 0.0311, 0.2201), (-3, 5, 11)),
        (SIGNED, (0.0235, 0.0235, 0.0235), (-128, -128, -128)),
    ],
)
def test_every_pair_of_codes(
    operation: nn.OperationCode, code: nn.OperandCode, scales: tuple[float, ...], points: tuple[int, ...]
) -> None:
    scales = tuple(float(np.float32(scale)) for scale in scales)
    dtype = np.uint8 if code == UNSIGNED else np.int8
    model = nn.Model()
    operands = [
        model.add_operand(nn.OperandType(code, (256, 256), scale, point))
        for scale, point in zip(scales, points, strict=True)
    ]
    activation = model.add_operand(nn.OperandType(nn.OperandCode.INT32))
    model.set_operand_value(activation, np.int32(nn.FuseCode.NONE))
    model.add_operation(operation, [*operands[:2], activation], operands[2:])
    model.identify_inputs_and_outputs(operands[:2], operands[2:])
    model.finish()
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    first, second = (np.ascontiguousarray(one) for one in np.broadcast_arrays(codes[:, np.newaxis], codes))
    with nn.Network.from_model(model).compile("cpu") as session:
        got = session.run([first, second])[0]
    sign = 1 if operation == nn.OperationCode.ADD else -1
    sums = [[specified(int(one), int(two), scales, points, sign) for two in codes] for one in codes]
    np.testing.assert_array_equal(got, np.clip(sums, np.iinfo(dtype).min, np.iinfo(dtype).max))
