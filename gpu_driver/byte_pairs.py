# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB and MUL of bytes by float32 arithmetic, where it gives the specified integer for every pair of bytes.

Two fused multiply-adds and a rounding to the nearest integer take a fraction of the time of three fixed-point products.
All 65,536 pairs are tried at preparation, with factors near the real ones.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier
from nn_runtime.quantization import multiply_by_quantized_multiplier
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array, OperandView
    from nn_runtime.quantization import FixedPointMultiplier

_UNIT = 2.0**-23
_UNITS = 0, 1, -1
_GREATEST_FACTOR = 1024
"""So that products stay integers of 32 bits, and sums below 2^22 (combine.h: nearest_integer16)."""
_OFFSET_UNITS = 0, 64, -64, 128, -128, 192, -192
_NEAR_TIES = 5e-4
"""Times the greater factor, if that is above 1: both arithmetics of ADD and SUB are nearer to the real sum."""
_DOUBTS = -1e-13, 1e-13
"""More than float64 loses of a value below 512: what is the same with both is what float32 gives."""


@dataclass(frozen=True)
class Bytes:
    """How bytes of a tensor stand for numbers, and the least and greatest of them."""

    scale: float
    zero_point: int
    low: int
    high: int

    @staticmethod
    def of(operand: OperandView) -> Bytes:
        """Return those of an operand."""
        info = np.iinfo(dtype_of(operand.type))
        return Bytes(operand.scale, operand.zero_point, int(info.min), int(info.max))

    @property
    def values(self) -> Array:
        """Every byte."""
        return np.arange(self.low, self.high + 1)


@functools.lru_cache(maxsize=256)
def by_floats(code: OperationCode, first: Bytes, second: Bytes, output: Bytes) -> tuple[float, float, float] | None:
    """Return three numbers as combine.h takes them for ADD, SUB, MUL; None if any pair would be wrong.

    Two factors and an offset; of MUL a factor, and what negative products and others add.
    """
    a, b = first.values[:, np.newaxis] - first.zero_point, second.values
    operands = first, second, output
    if code == OperationCode.MUL:
        centred = b - second.zero_point
        right = _specified(code, a, centred, operands)
        return _product(a * centred, first.scale * second.scale / output.scale, right, output)
    factors = first.scale / output.scale, second.scale / output.scale * (-1 if code == OperationCode.SUB else 1)
    if max(map(abs, factors)) >= _GREATEST_FACTOR:
        return None
    sums = a * factors[0] + (b - second.zero_point) * factors[1]
    near = np.abs(sums - np.floor(sums) - 0.5) < _NEAR_TIES * max(1.0, *map(abs, factors))  # others are rounded alike
    rows, columns = np.nonzero(near)
    a, b = a[rows, 0], b[columns]
    right = _specified(code, a, b - second.zero_point, operands)
    right = np.clip(right + output.zero_point, output.low, output.high)
    for units in itertools.product(_UNITS, _UNITS, _OFFSET_UNITS):
        one, two = (_float32(factor * (1 + unit * _UNIT)) for factor, unit in zip(factors, units, strict=False))
        offset = _float32(output.zero_point - second.zero_point * factors[1] + units[2] * _UNIT)
        if all(np.array_equal(np.clip(_added(a, b, (one, two, offset), doubt), output.low, output.high), right)
               for doubt in _DOUBTS):  # fmt: skip
            return one, two, offset
    return None


def specified(
    code: OperationCode, operands: tuple[Bytes, Bytes, Bytes], bounds: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    """Return what the specification makes of codes of two operands, within bounds, in codes of the third.

    code: ADD, SUB or MUL.
    """
    first, second, output = operands

    def combined(a: Array, b: Array) -> Array:
        centred = _specified(code, a - first.zero_point, b - second.zero_point, operands)
        codes: Array = np.clip(centred + output.zero_point, *bounds)
        return codes

    return combined


def _product(products: Array, real: float, right: Array, output: Bytes) -> tuple[float, float, float] | None:
    """Return the factor and what negative products and others add before they are cut to integers.

    The specification rounds twice, so that this is a little more than a half, and another number for either sign where
    the factor is a power of two.
    """
    factor = _float32(real)
    low, high = output.low - output.zero_point, output.high - output.zero_point
    right = np.clip(right, low, high)
    negative, missing = products < 0, np.abs(right) - np.abs(products * factor)
    is_bound = np.where(negative, right == low, right == high)  # then more does no harm
    if is_bound.all() or real >= _GREATEST_FACTOR:
        return None
    below, above = (_enough(missing[one], missing[one & ~is_bound]) for one in (negative, ~negative))
    signed = np.where(negative, -below, above)
    for doubt in _DOUBTS:
        cut = np.trunc((products * factor + signed + doubt).astype(np.float32))
        if not np.array_equal(np.clip(cut, low, high), right):
            return None
    return factor, -below, above


def _enough(missing: Array, most: Array) -> float:
    """Return the middle of what is not less than anything that is missing, and less than one and all of `most`."""
    least, greatest = float(missing.max(initial=0.0)), 1 + float(most.min(initial=0.0))
    return _float32((least + greatest) / 2)


def _added(a: Array, b: Array, factors: tuple[float, float, float], doubt: float) -> Array:
    """Return what two fused multiply-adds make of pairs, rounded to integers, ties to even."""
    one, two, offset = factors
    inner = (b * two + offset + doubt).astype(np.float32).astype(np.float64)
    rounded: Array = np.rint((a * one + inner + doubt).astype(np.float32))
    return rounded


def _float32(value: float) -> float:
    return float(np.float32(value))


def _specified(code: OperationCode, a: Array, b: Array, operands: tuple[Bytes, Bytes, Bytes]) -> Array:
    """Return the centred results of centred bytes by the specification's fixed-point products."""
    scales = tuple(one.scale for one in operands)
    if code == OperationCode.MUL:
        return _scaled(a * b, mul_multiplier(*scales))
    parameters = add_parameters(*scales)
    first, second = _scaled(a << ADD_LEFT_SHIFT, parameters.input0), _scaled(b << ADD_LEFT_SHIFT, parameters.input1)
    total = first - second if code == OperationCode.SUB else first + second
    return _scaled(total, parameters.output)


def _scaled(values: Array, factor: FixedPointMultiplier) -> Array:
    return multiply_by_quantized_multiplier(values, factor.mantissa, factor.exponent)
