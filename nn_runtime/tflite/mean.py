# SPDX-License-Identifier: Apache-2.0
"""TFLite's quantised MEAN over neighbouring axes as a convolution with equal weights.

NNAPI's MEAN cannot rescale. TFLite's kernel multiplies the sum by one fixed-point number whose mantissa need not be
normalised, so its first rounding is coarser than a convolution's. Weight and bias are chosen here such that as few sums
as possible, mostly none, are rounded otherwise.
"""

from __future__ import annotations

import math
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
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array, Dimensions

MAX_WINDOW, MAX_FILTER, MAX_RATIO = 1 << 14, 1 << 20, 1 << 16
_MAX_SUMS = 1 << 18
"""Sums that a weight is tried on; of more, so many at even distances."""
_FINE = 64
"""A weight that makes the convolution's own first rounding fine."""


@dataclass(frozen=True)
class MeanWindow:
    """The mean of `terms` elements, `inner` elements apart, as a convolution of [outer, height, width, channels].

    Of the last axes it is a CONV_2D of windows of one with one output channel, of others a DEPTHWISE_CONV_2D.
    """

    outer: int
    height: int
    width: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axes: Sequence[int]) -> MeanWindow:
        """Return the one for axes of a shape, which are neighbours in order."""
        outer, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
        return MeanWindow(outer, shape[axes[0]], math.prod(shape[i] for i in axes[1:]), inner)

    @property
    def terms(self) -> int:
        """How many elements make a mean."""
        return self.height * self.width

    @property
    def is_of_channels(self) -> bool:
        """Whether the last axes are reduced."""
        return self.inner == 1

    @property
    def input_shape(self) -> Dimensions:
        """The convolution's input."""
        return (
            (self.outer, 1, 1, self.terms) if self.is_of_channels else (self.outer, self.height, self.width, self.inner)
        )

    def fits(self, source: Value, output: Value) -> bool:
        """Tell whether filter and scales are of a reasonable size."""
        reasonable = 1 / MAX_RATIO < source.scale / output.scale < MAX_RATIO
        return reasonable and 0 < self.terms <= MAX_WINDOW and self.terms * self.inner <= MAX_FILTER


def mean_filter(window: MeanWindow, source: Value, output: Value) -> tuple[Value, Value]:
    """Return filter and bias of the convolution; `output` has the scale of the result."""
    count = window.terms
    info = np.iinfo(dtype_of(source.type))
    first, last = (count * (int(end) - source.zero_point) for end in (info.min, info.max))
    sums = np.arange(first, last + 1, -(-(last + 1 - first) // _MAX_SUMS))
    wanted = _reference(sums, count, source.scale / output.scale)
    real = source.scale / output.scale / count
    _, exponent = _reference_multiplier(count, source.scale / output.scale)
    # What the reference's first rounding adds at most, in units of the convolution's sum.
    nudge = round(2.0 ** (exponent - 1) / real * _FINE) if exponent < 0 else 0
    candidates = [(1, 0), (_FINE, 0), (_FINE, nudge), (_FINE, nudge - 1), (_FINE, -nudge), (_FINE, 1 - nudge)]
    fewest, found = sums.size + 1, candidates[0]
    for weight, bias in candidates:
        errors = int(np.count_nonzero(_convolution(sums, weight, bias, source, output, count) != wanted))
        if errors < fewest:
            fewest, found = errors, (weight, bias)
        if fewest == 0:
            break
    return _constants(window, source, *found)


def _constants(window: MeanWindow, source: Value, weight: int, bias: int) -> tuple[Value, Value]:
    scale = _weight_scale(weight, window.terms)
    equal = np.full((1, *window.input_shape[1:]), weight, dtype_of(source.type))
    bias_scale = float(np.float32(source.scale) * np.float32(scale))
    biases = np.full(window.inner, bias, np.int32)
    return (
        Value(source.type, equal.shape, scale, data=equal),
        Value(OperandCode.TENSOR_INT32, (window.inner,), bias_scale, data=biases),
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
    shift = count.bit_length() - 1  # which TFLite bounds where no window fits
    return (multiplier.mantissa << shift) // count, multiplier.exponent - shift
