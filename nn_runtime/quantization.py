# SPDX-License-Identifier: Apache-2.0
"""The one host-side truth for quantised arithmetic: multipliers, rounding, activation bounds.

A real multiplier is kept as a 31-bit mantissa and an exponent; products are rounded as gemmlowp does: a saturating
rounding doubling high multiply, then a rounding right shift with ties away from zero.
FULLY_CONNECTED, and L2_NORMALIZATION of INT8, round once, as LiteRT's do (docs/decisions/0002-eight-bit-is-exact.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nn_runtime.codes import FuseCode
from nn_runtime.operand import OperandType, dtype_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from nn_runtime.operand import Array, ChannelQuant

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


class Quantized(Protocol):
    """Type and quantisation of an operand: an OperandView or an OperandType."""

    @property
    def type(self) -> int:
        """Operand type code."""

    @property
    def scale(self) -> float:
        """Quantisation scale: real = scale * (q - zero_point)."""

    @property
    def zero_point(self) -> int:
        """Quantisation zero point."""

    @property
    def channel_quant(self) -> ChannelQuant | None:
        """Per-channel scales, if the type has them."""


def quantized_type(operand: Quantized) -> OperandType:
    """Return type, scale and zero point alone: a key for tables that depend on nothing else."""
    return OperandType(operand.type, (), operand.scale, operand.zero_point)


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


def fixed_point_multipliers(reals: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return mantissas and exponents, one each per real multiplier (per-channel quantisation)."""
    fractions, exponents = np.frexp(np.asarray(reals, np.float64))
    mantissas = np.floor(fractions * 2.0**31 + 0.5)
    carried = mantissas == 2.0**31
    mantissas[carried] /= 2
    exponents[carried] += 1
    vanishing, huge = exponents < -31, exponents > 30
    mantissas[vanishing], exponents[vanishing] = 0, 0
    mantissas[huge], exponents[huge] = _INT32_MAX, 30
    return mantissas.astype(np.int32), exponents.astype(np.int32)


def saturating_rounding_doubling_high_mul(values: Array, mantissa: Array | int) -> Array:
    """Return round(values * mantissa / 2^31) as int64, ties towards plus infinity; one of the two is > -2^31.

    gemmlowp adds 2^30 or 1 - 2^30 by the product's sign and divides towards zero, which is this shift; the one product
    that it saturates, (-2^31)^2, is excluded.
    """
    product = np.multiply(values, mantissa, dtype=np.int64)
    product += 1 << 30
    product >>= 31
    return product


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


def multiply_rounding_once(values: Array, mantissa: Array | int, exponent: Array | int) -> Array:
    """Return values * mantissa * 2^(exponent - 31) rounded once, ties towards plus infinity, wrapping to int32.

    |values| <= 2^31, -31 <= exponent <= 30; arguments broadcast (per-channel multipliers last).
    """
    right = 31 - np.asarray(exponent, np.int64)
    product = np.multiply(values, mantissa, dtype=np.int64)
    product += np.int64(1) << (right - 1)
    wrapped: Array = (product >> right).astype(np.int32).astype(np.int64)
    return wrapped


def convolution_multipliers(
    source: Quantized, weights: Quantized, output: Quantized
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return mantissas and exponents of source * weights / output: one each, or one per channel of the weights.

    As TFLite does it: per tensor the product of the scales is rounded to float32, per channel it is not.
    """
    if weights.channel_quant is None:
        product = float(np.float32(source.scale) * np.float32(weights.scale))
        return fixed_point_multipliers([product / output.scale])
    return fixed_point_multipliers(source.scale * np.array(weights.channel_quant.scales) / output.scale)


def with_signs_of(values: Array, magnitudes: Array) -> Array:
    """Return np.copysign(magnitudes, values), several times as fast.

    Both of float32 or of float64, the magnitudes with no sign.
    """
    bits = np.uint32 if values.dtype == np.float32 else np.uint64
    signs = np.bitwise_and(values.view(bits), bits(1 << (8 * values.itemsize - 1)))
    signs |= magnitudes.view(bits)
    signed: Array = signs.view(values.dtype)
    return signed


def round_half_away(values: Array) -> Array:
    """Return float32 or float64 values rounded to integers, ties away from zero (std::round)."""
    below_half = np.nextafter(values.dtype.type(0.5), values.dtype.type(0))  # 0.5 would take it to 1
    rounded: Array = np.trunc(values + with_signs_of(values, below_half))
    return rounded


def quantize(values: Array, operand: Quantized) -> Array:
    """Quantise real values to the operand's 8- or 16-bit type: clamp(round(x / scale) + zero_point) in float32.

    NaN becomes the type's smallest value.
    """
    info = np.iinfo(dtype_of(operand.type))
    # A quotient of no dimensions would be a number, which cannot be written to.
    scaled = np.asarray(round_half_away(values.astype(np.float32, copy=False) / np.float32(operand.scale)))
    scaled += np.float32(operand.zero_point)
    np.fmax(scaled, np.float32(info.min), out=scaled)
    np.fmin(scaled, np.float32(info.max), out=scaled)
    quantized: Array = scaled.astype(info.dtype)
    return quantized


def dequantize(values: Array, operand: Quantized) -> Array:
    """Return real values in float32: scale * (q - zero_point), per channel where the type is."""
    real: Array = np.subtract(values, np.float32(operand.zero_point), dtype=np.float32)
    scales = np.array(operand.scale, np.float32)
    if operand.channel_quant is not None:
        shape = [1] * values.ndim
        shape[operand.channel_quant.channel_dim] = -1
        scales = np.array(operand.channel_quant.scales, np.float32).reshape(shape)
    real *= scales
    return real


def lookup_table(function: Callable[[Array], Array], source: Quantized, output: Quantized) -> Array:
    """Return the 256 results of a real function between two 8-bit types, indexed by the code's byte.

    As TFLite's tables: the function of float32 scale * (q - zero_point), times float32 1 / output scale, rounded. What
    float32 does not hold is the nearest code, what is no number the zero point.
    """
    info = np.iinfo(dtype_of(output.type))
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(source.type))
    with np.errstate(over="ignore", invalid="ignore"):
        rescaled = function(dequantize(codes, source)) * (np.float32(1) / np.float32(output.scale))
        quantized = round_half_away(np.nan_to_num(rescaled, posinf=np.inf, neginf=-np.inf))
        quantized += np.float32(output.zero_point)
    table: Array = np.clip(quantized, info.min, info.max).astype(info.dtype)
    return table


def requantization_table(source: Quantized, output: Quantized) -> Array:
    """Return every code of one 8-bit type in the quantisation of another, indexed by its byte.

    clamp(round((q - zero_point) * scale / output scale + output zero point)): the first product in float32, the rest in
    float64, as the specification's reference.
    """
    info = np.iinfo(dtype_of(output.type))
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(source.type))
    real = dequantize(codes, source).astype(np.float64)
    table: Array = np.clip(round_half_away(real / output.scale + output.zero_point), info.min, info.max)
    return table.astype(info.dtype)


def inverse_sqrt_multipliers(values: Array) -> tuple[Array, Array]:
    """Return mantissas and right shifts (int64, of the input's shape) of 1 / sqrt(value), 0 <= value < 2^31.

    x / sqrt(value) is rounding_divide_by_pot(saturating_rounding_doubling_high_mul(x, mantissa), shift); 0 counts as 1.
    Five Newton-Raphson steps in fixed point, as TFLite's GetInvSqrtQuantizedMultiplierExp.
    """
    multiply = saturating_rounding_doubling_high_mul
    wide = np.maximum(values.astype(np.int64), 2)
    shrunk = (wide >= 1 << 29).astype(np.int64)  # below 2^31 one division by 4 is enough
    wide >>= 2 * shrunk
    bits = np.frexp(wide.astype(np.float64))[1].astype(np.int64)
    pairs = (31 - bits) // 2 - 1
    half = (wide << 2 * pairs) >> 1  # three integer bits
    quarter = rounding_divide_by_pot(half, 1)
    estimate = np.full(wide.shape, 1 << 28, np.int64)
    for _ in range(5):
        cube = _saturate(multiply(multiply(estimate, estimate), estimate) << 6)
        estimate = _saturate((multiply(estimate, (1 << 28) + (1 << 27)) - multiply(quarter, cube)) << 3)
    mantissas, shifts = multiply(estimate, 1518500250), 11 + shrunk - pairs
    mantissas <<= np.maximum(-shifts, 0)
    tiny = values <= 1
    return np.where(tiny, _INT32_MAX, mantissas), np.where(tiny, 0, np.maximum(shifts, 0))


def _saturate(values: Array) -> Array:
    saturated: Array = np.clip(values, _INT32_MIN, _INT32_MAX)
    return saturated


def quantize_value(real: float, operand: Quantized) -> int:
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


def activation_range_quantized(activation: FuseCode, output: Quantized) -> tuple[int, int]:
    """Return the bounds of a fused activation in the output's quantised domain, cut to its type's range."""
    info = np.iinfo(dtype_of(output.type))
    low, high = activation_range_float(activation)
    quantized_low = int(info.min) if math.isinf(low) else max(int(info.min), quantize_value(low, output))
    quantized_high = int(info.max) if math.isinf(high) else min(int(info.max), quantize_value(high, output))
    return quantized_low, quantized_high
