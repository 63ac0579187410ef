# SPDX-License-Identifier: Apache-2.0
"""The one host-side truth for quantised arithmetic: multipliers, rounding, activation bounds.

A real multiplier is kept as a 31-bit mantissa and an exponent; products are rounded as gemmlowp does: a saturating
rounding doubling high multiply, then a rounding right shift with ties away from zero (operations.json, common rules).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode
from nn_runtime.operand import dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from nn_runtime.operand import Array, OperandView

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class FixedPointMultiplier:
    """`mantissa * 2**(exponent - 31)`, mantissa in [2^30, 2^31) or 0; exponent > 0 shifts left."""

    mantissa: int
    exponent: int


def fixed_point_multiplier(real: float) -> FixedPointMultiplier:
    """Return the nearest fixed-point form of a real multiplier >= 0 (rounded half away from zero).

    Below 2^-32 it becomes 0; the exponent is cut at 30, as in TFLite's QuantizeMultiplier.
    """
    if real == 0.0:
        return FixedPointMultiplier(0, 0)
    fraction, exponent = math.frexp(real)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa //= 2
        exponent += 1
    if exponent < -31:
        return FixedPointMultiplier(0, 0)
    if exponent > 30:
        return FixedPointMultiplier(_INT32_MAX, 30)
    return FixedPointMultiplier(mantissa, exponent)


def fixed_point_multipliers(reals: Iterable[float]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return mantissas and exponents, one each per real multiplier (per-channel quantisation)."""
    parts = [fixed_point_multiplier(real) for real in reals]
    return (
        np.array([part.mantissa for part in parts], np.int32),
        np.array([part.exponent for part in parts], np.int32),
    )


def saturating_rounding_doubling_high_mul(values: Array, mantissa: Array | int) -> Array:
    """Return round(values * mantissa / 2^31), ties away from zero as gemmlowp's nudge gives, saturated to int32."""
    product = values.astype(np.int64) * mantissa
    nudge = np.where(product >= 0, np.int64(1 << 30), np.int64(1 - (1 << 30)))
    total = product + nudge
    # C++ division truncates towards zero.
    high = np.where(total >= 0, total >> 31, -((-total) >> 31))
    saturated: Array = np.minimum(high, _INT32_MAX)
    return saturated


def rounding_divide_by_pot(values: Array, exponent: Array | int) -> Array:
    """Return values / 2^exponent rounded to nearest, ties away from zero; exponent >= 0."""
    wide = values.astype(np.int64)
    mask = (np.int64(1) << np.asarray(exponent, np.int64)) - 1
    remainder = wide & mask
    threshold = (mask >> 1) + (wide < 0)
    rounded: Array = (wide >> np.asarray(exponent, np.int64)) + (remainder > threshold)
    return rounded


def multiply_by_quantized_multiplier(
    values: Array,
    mantissa: Array | int,
    exponent: Array | int,
) -> Array:
    """Return values * mantissa * 2^(exponent - 31) with the reference's two roundings (double rounding).

    The left shift wraps to int32 as the reference's does; arguments broadcast (per-channel multipliers last).
    """
    exponents = np.asarray(exponent, np.int64)
    left, right = np.maximum(exponents, 0), np.maximum(-exponents, 0)
    shifted = values.astype(np.int64) << left
    if np.any(left):
        shifted = shifted.astype(np.int32).astype(np.int64)
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(shifted, mantissa), right)


def round_half_away(values: Array) -> Array:
    """Return values rounded to integers, ties away from zero (std::round)."""
    truncated = np.trunc(values)
    away = np.abs(values - truncated) >= 0.5
    rounded: Array = truncated + np.copysign(away, values).astype(values.dtype)
    return rounded


def quantize(values: Array, operand: OperandView) -> Array:
    """Quantise real values to the operand's 8- or 16-bit type: clamp(round(x / scale) + zero_point) in float32."""
    info = np.iinfo(dtype_of(operand.type))
    scaled = values.astype(np.float32) / np.float32(operand.scale)
    rounded = round_half_away(scaled) + np.float32(operand.zero_point)
    clamped: Array = np.clip(rounded, info.min, info.max).astype(info.dtype)
    return clamped


def dequantize(values: Array, operand: OperandView) -> Array:
    """Return real values in float32: scale * (q - zero_point), per channel where the type is."""
    centred = values.astype(np.int32) - operand.zero_point
    scales = np.array(operand.scale, np.float32)
    if operand.channel_quant is not None:
        shape = [1] * values.ndim
        shape[operand.channel_quant.channel_dim] = -1
        scales = np.array(operand.channel_quant.scales, np.float32).reshape(shape)
    real: Array = np.multiply(centred, scales, dtype=np.float32)
    return real


def quantize_value(real: float, operand: OperandView) -> int:
    """Return one real number in the operand's quantised domain, not clamped."""
    scaled = np.float32(real) / np.float32(operand.scale)
    return operand.zero_point + int(math.floor(abs(float(scaled)) + 0.5) * math.copysign(1, scaled))


def activation_range_float(activation: FuseCode) -> tuple[float, float]:
    """Return the bounds of a fused activation for real values."""
    return {
        FuseCode.NONE: (-math.inf, math.inf),
        FuseCode.RELU: (0.0, math.inf),
        FuseCode.RELU1: (-1.0, 1.0),
        FuseCode.RELU6: (0.0, 6.0),
    }[activation]


def activation_range_quantized(activation: FuseCode, output: OperandView) -> tuple[int, int]:
    """Return the bounds of a fused activation in the output's quantised domain, cut to its type's range."""
    info = np.iinfo(dtype_of(output.type))
    low, high = activation_range_float(activation)
    quantized_low = int(info.min) if math.isinf(low) else max(int(info.min), quantize_value(low, output))
    quantized_high = int(info.max) if math.isinf(high) else min(int(info.max), quantize_value(high, output))
    return quantized_low, quantized_high
