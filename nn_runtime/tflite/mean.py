# SPDX-License-Identifier: Apache-2.0
"""TFLite's quantised MEAN over height and width as a depthwise convolution with equal weights.

NNAPI's MEAN cannot rescale. TFLite's kernel multiplies the sum by one fixed-point number whose mantissa need not be
normalised, so its first rounding is coarser than a convolution's. Weight and bias are chosen here such that as few sums
as possible, mostly none, are rounded otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.operand import dtype_of
from nn_runtime.quantization import (
    convolution_multipliers,
    fixed_point_multiplier,
    multiply_by_quantized_multiplier,
)
from nn_runtime.tflite.values import Value

if TYPE_CHECKING:
    from nn_runtime.operand import Array

MAX_WINDOW, MAX_FILTER, MAX_RATIO = 1 << 14, 1 << 20, 1 << 16
_MAX_SUMS = 1 << 18
"""Sums that a weight is tried on; of more, so many at even distances."""
_FINE = 64
"""A weight that makes the convolution's own first rounding fine."""


def fits_mean_filter(source: Value, output: Value) -> bool:
    """Tell whether filter and scales for the mean of [batches, height, width, depth] are of a reasonable size."""
    _, height, width, depth = source.shape or (0, 0, 0, 0)
    reasonable = 1 / MAX_RATIO < source.scale / output.scale < MAX_RATIO
    return reasonable and height * width <= MAX_WINDOW and height * width * depth <= MAX_FILTER


def mean_filter(source: Value, output: Value) -> tuple[Value, Value]:
    """Return filter and bias of the depthwise convolution; `source` has rank 4, `output` the scale of the result."""
    _, height, width, _ = source.shape or (1, 1, 1, 1)
    count = height * width
    info = np.iinfo(dtype_of(source.type))
    first, last = (count * (int(end) - source.zero_point) for end in (info.min, info.max))
    sums = np.arange(first, last + 1, -(-(last + 1 - first) // _MAX_SUMS))
    wanted = _reference(sums, count, source.scale / output.scale)
    real = source.scale / output.scale / count
    _, exponent = _reference_multiplier(count, source.scale / output.scale)
    # What the reference's first rounding adds at most, in units of the convolution's sum.
    nudge = round(2.0 ** (exponent - 1) / real * _FINE) if exponent < 0 else 0
    candidates = [(1, 0), (_FINE, 0), (_FINE, nudge), (_FINE, nudge - 1), (_FINE, -nudge), (_FINE, 1 - nudge)]
    errors = [
        np.count_nonzero(_convolution(sums, weight, bias, source, output, count) != wanted)
        for weight, bias in candidates
    ]
    return _constants(source, *candidates[int(np.argmin(errors))])


def _constants(source: Value, weight: int, bias: int) -> tuple[Value, Value]:
    _, height, width, depth = source.shape or (1, 1, 1, 1)
    scale = _weight_scale(weight, height * width)
    equal = np.full((1, height, width, depth), weight, dtype_of(source.type))
    bias_scale = float(np.float32(source.scale) * np.float32(scale))
    biases = np.full(depth, bias, np.int32)
    return (
        Value(source.type, equal.shape, scale, data=equal),
        Value(OperandCode.TENSOR_INT32, (depth,), bias_scale, data=biases),
    )


def _weight_scale(weight: int, count: int) -> float:
    return float(np.float32(1.0 / (weight * count)))


def _convolution(sums: Array, weight: int, bias: int, source: Value, output: Value, count: int) -> Array:
    weights = replace(source, scale=_weight_scale(weight, count), zero_point=0)
    mantissas, exponents = convolution_multipliers(source, weights, output)
    return multiply_by_quantized_multiplier(sums * weight + bias, mantissas, exponents)


def _reference(sums: Array, count: int, ratio: float) -> Array:
    return multiply_by_quantized_multiplier(sums, *_reference_multiplier(count, ratio))


def _reference_multiplier(count: int, ratio: float) -> tuple[int, int]:
    """Return mantissa and exponent of ratio / count as TFLite folds the division into the multiplier."""
    multiplier = fixed_point_multiplier(ratio)
    shift = min(count.bit_length() - 1, 32, 31 + multiplier.exponent)
    return (multiplier.mantissa << shift) // count, multiplier.exponent - shift
